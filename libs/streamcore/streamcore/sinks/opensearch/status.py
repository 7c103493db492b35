"""Reads the state of an alias and its indexes, for ``headgate search``."""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.sinks.opensearch.client import SearchClient
from streamcore.sinks.opensearch.indexes import VERSIONS, index_owner, live_alias
from streamcore.sinks.opensearch.rebuild import AliasState, read_alias_state


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """One index. ``searched``: readers search it. ``live``: cuts are written to it.

    ``template_version``: of the template when the index was created. ``current_version``: of the template now.
    """

    index: str
    app: str
    lane: str
    searched: bool
    live: bool
    documents: int
    size_bytes: int
    gc_deletes: str
    template_version: int | None
    current_version: int | None


def read_statuses(client: SearchClient, alias: str) -> tuple[AliasState, list[IndexStatus]]:
    """Return how far a rebuild is, and all indexes of the alias, the oldest first."""
    state = read_alias_state(client, alias)
    names = sorted({state.searched, *state.live, *state.old, *([state.new] if state.new is not None else [])})
    return state, [_status(client, name, state) for name in names]


def aliases(client: SearchClient) -> list[str]:
    """Return the aliases that Headgate's sinks write to, by the owners in the indexes' mappings."""
    indexes = client.request("GET", "/_all", params={"filter_path": "*.aliases,*.mappings._meta"})
    owned = [index for index in indexes.values() if index_owner(index.get("mappings", {})).get("versions") == VERSIONS]
    names = {name for index in owned for name in index.get("aliases", {})}
    return sorted(name for name in names if live_alias(name) in names)


def _status(client: SearchClient, name: str, state: AliasState) -> IndexStatus:
    params = {"include_defaults": "true", "flat_settings": "true"}
    index = client.request("GET", f"/{name}", params=params)[name]
    totals = client.request("GET", f"/{name}/_stats/docs,store")["indices"].get(name, {}).get("primaries", {})
    owner = index_owner(index["mappings"])
    settings = index.get("defaults", {}) | index["settings"]
    return IndexStatus(
        index=name,
        app=str(owner.get("app")),
        lane=str(owner.get("lane")),
        searched=name == state.searched,
        live=name in state.live,
        documents=int(totals.get("docs", {}).get("count", 0)),
        size_bytes=int(totals.get("store", {}).get("size_in_bytes", 0)),
        gc_deletes=str(settings["index.gc_deletes"]),
        template_version=owner.get("template_version"),
        current_version=_current_version(client, owner),
    )


def _current_version(client: SearchClient, owner: dict[str, object]) -> int | None:
    """Return the version of the lane's template, or None if there is no template."""
    name = f"headgate-{owner.get('app')}-{owner.get('lane')}".lower()
    found = client.find(f"/_index_template/{name}")
    if found is None:
        return None
    version = found["index_templates"][0]["index_template"].get("version")
    if not isinstance(version, int):
        raise ConfigError(f"opensearch template {name} has no version; start the app, which puts its own")
    return version
