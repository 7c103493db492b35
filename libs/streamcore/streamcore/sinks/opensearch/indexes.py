"""Templates, indexes and aliases of a lane: made when they are missing, refused when they cannot keep what we promise.

For a lane with alias ``products`` there are: the template ``headgate-<app>-<lane>`` for ``products-0*``; indexes
``products-000001`` and so on; the alias ``products``, of the one index that readers search; and the alias
``products-live``, of the indexes that a cut is written to, of which a rebuild has two.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from streamcore.errors import ConfigError, Retryable
from streamcore.sinks.opensearch.client import RequestRejected, SearchClient
from streamcore.sinks.opensearch.mappings import cannot_hold, mapping_properties
from streamcore.sinks.opensearch.settings import IndexSpec, Json

#: Written into each index's mapping: whose versions its documents have.
VERSIONS = "epoch<<40|batch"
_UNITS_MS = {"nanos": 1e-6, "micros": 1e-3, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(-?\d+)(nanos|micros|ms|s|m|h|d)\Z")
_PRIORITY = 500


def live_alias(alias: str) -> str:
    """Of the indexes that live updates go to."""
    return f"{alias}-live"


def first_index(alias: str) -> str:
    """Return the index that is made when there is none."""
    return f"{alias}-000001"


@dataclass(frozen=True, slots=True)
class IndexLane:
    """One lane of an app: where it goes, and the columns that its rows have."""

    app: str
    name: str
    spec: IndexSpec
    columns: pa.Schema

    @property
    def template(self) -> str:
        """The template's name."""
        return f"headgate-{self.app}-{self.name}".lower()

    @property
    def properties(self) -> dict[str, Json]:
        """The mapping of each column."""
        return mapping_properties(self.spec, self.columns)

    def body(self) -> dict[str, Json]:
        """Return the template."""
        settings: dict[str, Json] = {
            "refresh_interval": f"{self.spec.refresh_ms}ms",
            "gc_deletes": f"{self.spec.gc_deletes_ms}ms",
            **self.spec.settings,
        }
        mappings: dict[str, Json] = {"dynamic": "strict", "properties": self.properties}
        content = orjson.dumps([settings, mappings], option=orjson.OPT_SORT_KEYS)
        digest = hashlib.sha256(content).hexdigest()[:16]
        owner: Json = {
            "app": self.app,
            "lane": self.name,
            "versions": VERSIONS,
            "template_version": self.spec.template_version,
        }
        return {
            "index_patterns": [f"{self.spec.alias}-0*"],
            "priority": _PRIORITY,
            "version": self.spec.template_version,
            "_meta": {"headgate": digest},
            "template": {"settings": {"index": settings}, "mappings": {**mappings, "_meta": {"headgate": owner}}},
        }


def put_template(client: SearchClient, lane: IndexLane) -> None:
    """Put ours when there is none or an older one; a newer one stays."""
    body, path = lane.body(), f"/_index_template/{lane.template}"
    found = client.find(path)
    there = found["index_templates"][0]["index_template"] if found else {"version": 0}
    version = there.get("version") or 0
    if version == lane.spec.template_version and there.get("_meta") != body["_meta"]:
        raise ConfigError(
            f"opensearch template {lane.template}: the server has another one of version {version}; raise the lane's "
            f"template_version to {version + 1}, start the app, and then `headgate search rebuild`"
        )
    if version >= lane.spec.template_version:
        return
    try:
        client.request("PUT", path, body)
    except RequestRejected as refusal:
        raise ConfigError(f"opensearch template {lane.template} is refused: {refusal.reason}") from refusal


def check_alias(client: SearchClient, lane: IndexLane) -> None:
    """Refuse an alias that is an index itself, or of an index that is not this lane's."""
    alias = lane.spec.alias
    found = client.find(f"/{alias}", {"filter_path": "*.aliases,*.mappings._meta"}) or {}
    if alias in found:
        raise ConfigError(
            f"opensearch: {alias} is an index, not an alias, so it cannot be rebuilt while it is searched. Choose "
            f"another alias for lane {lane.name}, or copy it away and delete it: POST /_reindex "
            f'{{"source":{{"index":"{alias}"}},"dest":{{"index":"{alias}-before"}}}}, then DELETE /{alias}'
        )
    if len(found) > 1:
        raise ConfigError(f"opensearch: alias {alias} stands for {sorted(found)}; it must be one index")
    for index, answer in found.items():
        _check_owner(lane, index, answer.get("mappings", {}))


def ensure_index(client: SearchClient, lane: IndexLane) -> None:
    """Make the first index with both aliases, unless the alias is there."""
    alias = lane.spec.alias
    found = client.find(f"/_alias/{alias}")
    if found is None:
        _create_first(client, alias)
    elif client.find(f"/_alias/{live_alias(alias)}") is None:
        (index,) = found
        client.request("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": live_alias(alias)}}]})


def _create_first(client: SearchClient, alias: str) -> None:
    try:
        client.request("PUT", f"/{first_index(alias)}", {"aliases": {alias: {}, live_alias(alias): {}}})
    except RequestRejected as refusal:
        if refusal.code != "resource_already_exists_exception":
            raise ConfigError(f"opensearch: cannot make index {first_index(alias)}: {refusal.reason}") from refusal
        if client.find(f"/_alias/{alias}") is None:
            raise ConfigError(
                f"opensearch: index {first_index(alias)} is there and alias {alias} is not; point it at the index that "
                f'shall be searched: POST /_aliases {{"actions":[{{"add":{{"index":"{first_index(alias)}",'
                f'"alias":"{alias}"}}}}]}}, or delete the index'
            ) from refusal


def live_indexes(client: SearchClient, alias: str) -> tuple[str, ...]:
    """Return the indexes that a cut is written to."""
    found = client.find(f"/_alias/{live_alias(alias)}")
    if not found:
        raise Retryable(f"opensearch: alias {live_alias(alias)} is gone; opening the sink again makes it")
    return tuple(sorted(found))


def check_index(client: SearchClient, lane: IndexLane, index: str, late_ms: int) -> None:
    """Refuse an index that cannot keep what we promise; add mappings that it lacks."""
    found = client.request("GET", f"/{index}", params={"include_defaults": "true", "flat_settings": "true"})[index]
    _check_owner(lane, index, found["mappings"])
    settings = found.get("defaults", {}) | found["settings"]
    _check_gc_deletes(index, str(settings["index.gc_deletes"]), late_ms)
    if str(settings.get("index.translog.durability", "request")).lower() != "request":
        raise ConfigError(
            f"opensearch: index {index} answers before a document is on disk (translog.durability async), so a cut "
            f'could be lost. PUT /{index}/_settings {{"index.translog.durability":"request"}}'
        )
    _fit_mapping(client, lane, index, found["mappings"].get("properties", {}))


def index_owner(mappings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the owner of an index from its mapping; empty if no app owns it."""
    found = mappings.get("_meta", {}).get("headgate", {})
    return found if isinstance(found, dict) else {}


def duration_ms(text: str) -> float:
    """``60s``, ``1h`` and so on in milliseconds."""
    match = _DURATION.match(text)
    return 0 if match is None else int(match[1]) * _UNITS_MS[match[2]]


def _check_owner(lane: IndexLane, index: str, mappings: Mapping[str, Any]) -> None:
    owner = index_owner(mappings)
    if owner.get("versions") != VERSIONS:
        alias = lane.spec.alias
        raise ConfigError(
            f"opensearch: index {index} was not made for this sink, so the versions of its documents are not ours and "
            f"updates could lose against them. Take the alias away from it (POST /_aliases "
            f'{{"actions":[{{"remove":{{"index":"{index}","alias":"{alias}"}}}}]}}), start the app once, which makes a '
            f'new index, stop it, and copy: POST /_reindex {{"conflicts":"proceed","source":{{"index":"{index}"}},'
            f'"dest":{{"index":"{first_index(alias)}","op_type":"create"}}}}'
        )
    if (owner.get("app"), owner.get("lane")) != (lane.app, lane.name):
        raise ConfigError(
            f"opensearch: index {index} belongs to lane {owner.get('lane')} of app {owner.get('app')}; "
            f"give lane {lane.name} of {lane.app} an alias of its own"
        )


def _check_gc_deletes(index: str, text: str, late_ms: int) -> None:
    if duration_ms(text) < late_ms:
        needed_s = -(-late_ms // 1000)
        raise ConfigError(
            f"opensearch: index {index} forgets the version of a deleted document after {text}, but a request may be "
            f"on its way for {needed_s} s and bring it back. PUT /{index}/_settings "
            f'{{"index.gc_deletes":"{max(3600, needed_s)}s"}}'
        )


def _fit_mapping(client: SearchClient, lane: IndexLane, index: str, there: Mapping[str, Any]) -> None:
    rebuild = f"start the old version of the app again, `headgate search rebuild --alias {lane.spec.alias}`, then this"
    for field in lane.columns:
        if field.name in there and field.name != lane.spec.deleted and cannot_hold(field.type, there[field.name]):
            kind = there[field.name].get("type", "object")
            raise ConfigError(
                f"opensearch: index {index} has {field.name} as {kind}, which refuses every {field.type}; {rebuild}"
            )
    if missing := {name: mapping for name, mapping in lane.properties.items() if name not in there}:
        try:
            client.request("PUT", f"/{index}/_mapping", {"properties": missing})
        except RequestRejected as refusal:
            raise ConfigError(f"opensearch: index {index}: {refusal.reason}; {rebuild}") from refusal
