"""Creates and checks the index template, indexes and aliases of a lane.

A lane with alias ``products`` has the index template ``headgate-<app>-<lane>`` for ``products-0*``; indexes
``products-000001`` and so on; the alias ``products`` for the one index that readers search; and the alias
``products-live`` for the indexes that a cut is written to: one, or two during a rebuild.
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

#: The scheme of the documents' versions, as stored in each index's mapping.
VERSIONS = "epoch<<40|batch"
_UNITS_MS = {"nanos": 1e-6, "micros": 1e-3, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(-?\d+)(nanos|micros|ms|s|m|h|d)\Z")
_PRIORITY = 500


def live_alias(alias: str) -> str:
    """Return the alias of the live indexes, which cuts are written to."""
    return f"{alias}-live"


def first_index(alias: str) -> str:
    """Return the name of an alias's first index."""
    return f"{alias}-000001"


@dataclass(frozen=True, slots=True)
class IndexLane:
    """One lane of an app, with its settings and the columns of its rows."""

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
        """The mapping of each field."""
        return mapping_properties(self.spec, self.columns)

    def body(self) -> dict[str, Json]:
        """Return the body of the index template."""
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
    """Create or update the lane's index template. Keep a template with a higher ``template_version``.

    Raises ``ConfigError`` if the template differs but has an equal ``template_version``.
    """
    body, path = lane.body(), f"/_index_template/{lane.template}"
    response = client.find(path)
    stored = response["index_templates"][0]["index_template"] if response else {"version": 0}
    version = stored.get("version") or 0
    if version == lane.spec.template_version and stored.get("_meta") != body["_meta"]:
        raise ConfigError(
            f"opensearch template {lane.template}: the server has another one of version {version}; raise the lane's "
            f"template_version to {version + 1}, start the app, and then `headgate search rebuild`"
        )
    if version >= lane.spec.template_version:
        return
    try:
        client.request("PUT", path, body)
    except RequestRejected as rejection:
        raise ConfigError(f"opensearch template {lane.template} is rejected: {rejection.reason}") from rejection


def check_alias(client: SearchClient, lane: IndexLane) -> None:
    """Raise ``ConfigError`` if the alias is an index, or stands for several indexes or for one of another lane."""
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
    """Create the first index with both aliases, unless the alias exists. Add a missing live alias."""
    alias = lane.spec.alias
    found = client.find(f"/_alias/{alias}")
    if found is None:
        _create_first(client, alias)
    elif client.find(f"/_alias/{live_alias(alias)}") is None:
        (index,) = found
        client.request("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": live_alias(alias)}}]})


def _create_first(client: SearchClient, alias: str) -> None:
    """Create the first index. Raise ``ConfigError`` if it exists without its alias."""
    try:
        client.request("PUT", f"/{first_index(alias)}", {"aliases": {alias: {}, live_alias(alias): {}}})
    except RequestRejected as rejection:
        if rejection.code != "resource_already_exists_exception":
            raise ConfigError(f"opensearch: cannot make index {first_index(alias)}: {rejection.reason}") from rejection
        if client.find(f"/_alias/{alias}") is None:
            raise ConfigError(
                f"opensearch: index {first_index(alias)} is there and alias {alias} is not; point it at the index that "
                f'shall be searched: POST /_aliases {{"actions":[{{"add":{{"index":"{first_index(alias)}",'
                f'"alias":"{alias}"}}}}]}}, or delete the index'
            ) from rejection


def live_indexes(client: SearchClient, alias: str) -> tuple[str, ...]:
    """Return the indexes that cuts are written to. Raise ``Retryable`` if there are none."""
    found = client.find(f"/_alias/{live_alias(alias)}")
    if not found:
        raise Retryable(f"opensearch: alias {live_alias(alias)} is gone; opening the sink again makes it")
    return tuple(sorted(found))


def check_index(client: SearchClient, lane: IndexLane, index: str, late_ms: int) -> None:
    """Raise ``ConfigError`` if the index cannot keep the sink's promises; add missing field mappings.

    ``late_ms``: the longest delay of a request, which ``gc_deletes`` must exceed.
    """
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
    """Return an OpenSearch duration such as ``60s`` or ``1h`` in milliseconds; 0 for other texts."""
    match = _DURATION.match(text)
    return 0 if match is None else int(match[1]) * _UNITS_MS[match[2]]


def _check_owner(lane: IndexLane, index: str, mappings: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` if the index was not created for this lane."""
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
    """Raise ``ConfigError`` if the versions of deleted documents are forgotten before the last delayed request."""
    if duration_ms(text) < late_ms:
        needed_s = -(-late_ms // 1000)
        raise ConfigError(
            f"opensearch: index {index} forgets the version of a deleted document after {text}, but a request may be "
            f"on its way for {needed_s} s and bring it back. PUT /{index}/_settings "
            f'{{"index.gc_deletes":"{max(3600, needed_s)}s"}}'
        )


def _fit_mapping(client: SearchClient, lane: IndexLane, index: str, stored: Mapping[str, Any]) -> None:
    """Check the stored mappings of the lane's columns, and add missing ones."""
    rebuild = f"start the old version of the app again, `headgate search rebuild --alias {lane.spec.alias}`, then this"
    for field in lane.columns:
        if field.name in stored and field.name != lane.spec.deleted and cannot_hold(field.type, stored[field.name]):
            kind = stored[field.name].get("type", "object")
            raise ConfigError(
                f"opensearch: index {index} has {field.name} as {kind}, which rejects every {field.type}; {rebuild}"
            )
    if missing := {name: mapping for name, mapping in lane.properties.items() if name not in stored}:
        try:
            client.request("PUT", f"/{index}/_mapping", {"properties": missing})
        except RequestRejected as rejection:
            raise ConfigError(f"opensearch: index {index}: {rejection.reason}; {rebuild}") from rejection
