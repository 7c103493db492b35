"""Rebuilds an index: fills a new index from the current template while the app writes, then switches readers to it.

The stage of a rebuild (``RebuildStage``) follows from the aliases and the numbers of the indexes alone, so a run
continues an unfinished one. The steps:

1. ``created``: create ``<alias>-<n+1>`` with the template's mappings and settings. Until step 7 it keeps the versions
   of deleted documents for a week, because a copy may take hours and must not restore one.
2. ``live``: add it to ``<alias>-live``. From its next cut on, the app writes to both indexes.
3. ``followed``: wait until the ledger has a cut that was written to both. Then every earlier cut is completely written
   to the old index.
4. ``copied``: refresh the old index, so that a search finds those cuts, and copy it with the documents' versions. A
   document, or a deletion, that the new index has already is kept: its version is equal or newer.
5. ``verified``: compare the number of documents and a sample of them. Updates may arrive between two counts, so this is
   repeated; a lasting difference ends the rebuild before anybody searches the new index.
6. ``swapped``: move the alias from the old index to the new one, in one request.
7. ``retired``: reset the new index's ``gc_deletes``, and take the old index out of ``<alias>-live``.

The old index remains, without updates, until ``drop``, which waits for the app to write a cut without it.

A crash just after step 1 leaves an empty index with a number above the live one, which the next run uses. After steps 2
to 5 the new index is live and not searched: the next run repeats steps 3 to 5, and waits for a copy that still runs.
After step 6 the new index is searched and both are live: the next run begins with step 7.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from streamcore.errors import ConfigError, Permanent, Retryable
from streamcore.sinks.opensearch.client import RequestRejected, SearchClient
from streamcore.sinks.opensearch.indexes import index_owner, live_alias
from streamcore.sinks.opensearch.ledger import IndexLedger
from streamcore.sinks.opensearch.retries import RequestRetries
from streamcore.sinks.opensearch.settings import Json
from streamcore.sinks.sink import RetryPolicy, SinkHooks

#: The new index's ``gc_deletes`` until step 7.
_REBUILD_GC_DELETES = "7d"
_NUMBER = re.compile(r"(.+)-(\d{6})\Z")
_TASK = "*reindex"

T = TypeVar("T")


class RebuildStage(enum.StrEnum):
    """How far a rebuild is."""

    IDLE = "idle"  # one index, searched and live
    CREATED = "created"  # a new one exists, which nothing is written to
    LIVE = "live"  # both get live updates, the old one is searched
    SWAPPED = "swapped"  # both get live updates, the new one is searched


@dataclass(frozen=True, slots=True)
class AliasState:
    """The indexes of an alias.

    ``searched``: the index that readers search. ``live``: the indexes that cuts are written to. ``new``: the index that
    a rebuild fills, or None. ``old``: indexes with lower numbers, which are no longer needed.
    """

    alias: str
    stage: RebuildStage
    searched: str
    live: tuple[str, ...]
    new: str | None
    old: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RebuildLimits:
    """Limits of a rebuild.

    ``follow_ms``: the longest wait for the app's next cut. ``verify_ms``: the longest wait for equal indexes.
    ``samples``: documents that are compared. ``poll_ms``: the pause between two polls.
    """

    follow_ms: int = 60_000
    verify_ms: int = 60_000
    samples: int = 1_000
    poll_ms: int = 500


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """The result of a run: the index searched before and now. ``documents``: in the new index when it was verified."""

    before: str
    now: str
    documents: int


def read_alias_state(client: SearchClient, alias: str) -> AliasState:
    """Where the rebuild of an alias stands; ``ConfigError`` when it is no alias of ours."""
    found = client.find(f"/{alias}-0*,{alias}", {"filter_path": "*.aliases", "expand_wildcards": "all"}) or {}
    indexes = sorted(name for name in found if (match := _NUMBER.match(name)) and match[1] == alias)
    searched = [name for name in indexes if alias in found[name]["aliases"]]
    live = tuple(name for name in indexes if live_alias(alias) in found[name]["aliases"])
    if len(searched) != 1 or not live:
        raise ConfigError(f"opensearch: {alias} is no alias that a sink of ours writes to; start the app first")
    (current,) = searched
    old = tuple(name for name in indexes if name < current and name not in live)
    above = [name for name in indexes if name > current]
    if current not in live or len(live) > 2 or len(above) > 1:
        raise ConfigError(
            f"opensearch: alias {alias} is of {current}, {live_alias(alias)} of {list(live)}, and there are {indexes}: "
            "no rebuild leaves that; remove the index that you made by hand"
        )
    if len(live) == 2:
        stage = RebuildStage.SWAPPED if current == max(live) else RebuildStage.LIVE
        return AliasState(alias, stage, current, live, max(live), old)
    if above:
        return AliasState(alias, RebuildStage.CREATED, current, live, above[0], old)
    return AliasState(alias, RebuildStage.IDLE, current, live, None, old)


class Rebuild:
    """Rebuild of one alias of one app's sink. ``report`` receives progress messages, for people."""

    def __init__(
        self,
        client: SearchClient,
        alias: str,
        sink: str = "opensearch",
        limits: RebuildLimits | None = None,
        patience: RetryPolicy | None = None,
        hooks: SinkHooks | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._alias = alias
        self._sink = sink
        self._limits = limits or RebuildLimits()
        self._patience = patience or RetryPolicy()
        self._hooks = hooks or SinkHooks()
        self._report = report

    def run(self) -> RebuildResult:
        """Continue an unfinished rebuild, or run a new one.

        Raises ``ConfigError`` if the app writes no cut, ``Permanent`` if the copy differs, and ``Retryable`` if the
        server does not respond. The next run continues after an error.
        """
        state = self._retry(lambda: read_alias_state(self._client, self._alias))
        before = min(state.live)
        if state.stage is RebuildStage.SWAPPED:
            assert state.new is not None
            self._retire(before, state.new)
            return RebuildResult(before, state.new, self._count(state.new))
        # 1. The new index.
        new = state.new or self._create(before)
        self._report_step("created")
        # 2. The app writes to both.
        if state.stage is not RebuildStage.LIVE:
            self._update_aliases([{"add": {"index": new, "alias": live_alias(self._alias)}}])
        self._report_step("live")
        # 3. The app has written a cut to both.
        self._follow(lambda written: {before, new} <= written, f"writes to {new}")
        self._report_step("followed")
        # 4. Documents of earlier cuts.
        self._copy(before, new)
        self._report_step("copied")
        # 5. Comparison.
        documents = self._verify(before, new)
        self._report_step("verified")
        # 6. Readers search the new index.
        add: Json = {"add": {"index": new, "alias": self._alias}}
        self._update_aliases([{"remove": {"index": before, "alias": self._alias}}, add])
        self._report_step("swapped")
        # 7. The app writes only to the new index.
        self._retire(before, new)
        return RebuildResult(before, new, documents)

    def drop(self) -> tuple[str, ...]:
        """Delete the old indexes, once the app has written a cut without them; return their names."""
        old = self._retry(lambda: read_alias_state(self._client, self._alias)).old
        if old:
            self._follow(lambda written: written.isdisjoint(old), f"writes without {', '.join(old)}")
        for index in old:
            self._report(f"deleting {index}")
            self._retry(lambda index=index: self._client.request("DELETE", f"/{index}"))  # type: ignore[misc]
        return old

    def _report_step(self, step: str) -> None:
        self._hooks.on_step(step)

    def _retry(self, action: Callable[[], T]) -> T:
        return RequestRetries(self._patience, self._hooks, self._client.server).run(action)

    def _create(self, before: str) -> str:
        match = _NUMBER.match(before)
        assert match is not None
        new = f"{match[1]}-{int(match[2]) + 1:06}"
        self._report(f"creating {new}")
        body: Json = {"settings": {"index": {"gc_deletes": _REBUILD_GC_DELETES}}}
        try:
            self._retry(lambda: self._client.request("PUT", f"/{new}", body))
        except RequestRejected as rejection:
            if rejection.code != "resource_already_exists_exception":
                raise
        return new

    def _update_aliases(self, actions: list[Json]) -> None:
        self._retry(lambda: self._client.request("POST", "/_aliases", {"actions": actions}))

    def _follow(self, enough: Callable[[set[str]], bool], what: str) -> None:
        """Wait until ``enough`` is true of the indexes in the ledger. ``what``: the awaited event, for messages."""
        ledger = IndexLedger(self._client, self._app(), self._sink)
        deadline = time.monotonic() + self._limits.follow_ms / 1000
        self._report(f"waiting until the app {what}")
        while True:
            entry = self._retry(ledger.read)
            if entry is not None and entry.cut is not None and enough(set(entry.indexes)):
                return
            if time.monotonic() > deadline:
                seen = "it has noted no cut" if entry is None else f"its latest note: {entry}"
                raise ConfigError(
                    f"opensearch: app {self._app()} has not reached a cut that {what} in {self._limits.follow_ms} ms "
                    f"({seen}); is it running, and is its sink named {self._sink!r}? Start it, and do this again"
                )
            time.sleep(self._limits.poll_ms / 1000)

    def _app(self) -> str:
        """Return the app that owns the searched index."""
        searched = self._retry(lambda: read_alias_state(self._client, self._alias)).searched
        mappings = self._retry(lambda: self._client.request("GET", f"/{searched}/_mapping"))[searched]["mappings"]
        return str(index_owner(mappings).get("app"))

    def _copy(self, before: str, new: str) -> None:
        """Copy the documents with a task of the server, or wait for one that runs already."""
        self._refresh(before)
        body: Json = {
            "conflicts": "proceed",
            "source": {"index": before},
            "dest": {"index": new, "version_type": "external"},
        }
        task = self._running_copy(before, new)
        if task is None:
            self._report(f"copying {before} to {new}")
            params = {"wait_for_completion": "false"}
            task = str(self._retry(lambda: self._client.request("POST", "/_reindex", body, params))["task"])
            self._report_step("copying")
            self._await_copy(task)
            return
        self._report(f"a copy of {before} to {new} is under way; waiting for it")
        self._await_copy(task)

    def _running_copy(self, before: str, new: str) -> str | None:
        """Return the id of a copy that the server runs, or None."""
        found = self._retry(
            lambda: self._client.request("GET", "/_tasks", params={"actions": _TASK, "detailed": "true"})
        )
        for node in found["nodes"].values():
            for name, task in node["tasks"].items():
                description = task.get("description", "")
                if f"[{before}]" in description and f"[{new}]" in description and "parent_task_id" not in task:
                    return str(name)
        return None

    def _await_copy(self, task: str) -> None:
        """Wait for the end of the server's task.

        Raises ``Retryable`` if the server has restarted and lost the task, and ``Permanent`` if the new index rejected
        documents.
        """
        while True:
            found = self._retry(lambda: self._client.find(f"/_tasks/{task}"))
            if found is None:
                raise Retryable("opensearch: the server was started anew and has lost the copy; do this again")
            if found["completed"]:
                break
            status: Mapping[str, Any] = found["task"].get("status", {})
            copied = status.get("created", 0) + status.get("version_conflicts", 0) + status.get("updated", 0)
            self._report(f"copied {copied} of {status.get('total', 0)}")
            time.sleep(self._limits.poll_ms / 1000)
        failures = found.get("response", {}).get("failures") or found.get("error")
        if failures:
            first = failures[0] if isinstance(failures, list) else failures
            raise Permanent(
                f"opensearch: the new index rejects documents of the old one, the first: {str(first)[:500]}; change "
                "the mapping (and its template_version), delete the new index, and do this again"
            )

    def _verify(self, before: str, new: str) -> int:
        """Wait until both indexes are equal in number of documents and sample; return the number."""
        deadline = time.monotonic() + self._limits.verify_ms / 1000
        while True:
            self._refresh(f"{before},{new}")
            counts = self._count(before), self._count(new)
            different = self._different(before, new) if counts[0] == counts[1] else []
            if counts[0] == counts[1] and not different:
                self._report(f"{counts[1]} documents in both")
                return counts[1]
            if time.monotonic() > deadline:
                what = f"{len(different)} sampled ones differ: {different[:3]}" if different else f"counts {counts}"
                raise Permanent(
                    f"opensearch: {new} is not equal to {before} after {self._limits.verify_ms} ms: {what}. No "
                    f"search uses it yet. DELETE /{new} and repeat the rebuild, or wait for a time with fewer updates"
                )
            time.sleep(self._limits.poll_ms / 1000)

    def _different(self, before: str, new: str) -> list[str]:
        """Return the ids of sampled documents of the old index that the new one lacks, or has with another version or
        other contents."""
        query: Json = {
            "size": self._limits.samples,
            "version": True,
            "query": {"function_score": {"random_score": {}}},
        }
        hits = self._retry(lambda: self._client.request("POST", f"/{before}/_search", query))["hits"]["hits"]
        if not hits:
            return []
        ids: Json = {"ids": [hit["_id"] for hit in hits]}

        def versions_and_sources(index: str) -> dict[str, Any]:
            docs = self._retry(lambda: self._client.request("POST", f"/{index}/_mget", ids))["docs"]
            return {doc["_id"]: (doc.get("_version"), doc.get("_source")) for doc in docs}

        old, copied = versions_and_sources(before), versions_and_sources(new)
        return sorted(name for name in old if old[name] != copied.get(name))

    def _retire(self, before: str, new: str) -> None:
        """Run step 7."""
        own = self._retry(lambda: self._template_gc(new))
        settings: Json = {"index.gc_deletes": own}
        self._retry(lambda: self._client.request("PUT", f"/{new}/_settings", settings))
        self._report_step("remembering")
        self._update_aliases([{"remove": {"index": before, "alias": live_alias(self._alias)}}])
        self._report_step("retired")

    def _template_gc(self, new: str) -> str:
        found = self._client.request("POST", f"/_index_template/_simulate_index/{new}")
        return str(found["template"]["settings"]["index"]["gc_deletes"])

    def _refresh(self, indexes: str) -> None:
        self._retry(lambda: self._client.request("POST", f"/{indexes}/_refresh"))

    def _count(self, index: str) -> int:
        return int(self._retry(lambda: self._client.request("GET", f"/{index}/_count"))["count"])
