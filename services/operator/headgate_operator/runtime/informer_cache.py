"""Cache of the watched objects: the newest known version of each, by kind and name, and the objects of each app."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import Any  # JSON of any content

from headgate_operator.pods.labels import APP, COLLECTS
from headgate_operator.reconcile.observed import Observed
from headgate_operator.runtime.parse import read_app, read_collector, read_pod, read_savepoint
from headgate_operator.runtime.reconcile_once import CachedApp

Json = dict[str, Any]
#: (namespace, name)
Key = tuple[str, str]

APPS, PODS, SAVEPOINTS = "streamapps", "pods", "savepoints"

#: Number of deleted objects whose uids are remembered: more than there can be responses in flight.
_TOMBSTONES = 1_000


def object_key(raw: Json) -> Key:
    """Return namespace and name of an object."""
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


def app_key(kind: str, raw: Json) -> Key | None:
    """Return the key of the app that an object belongs to, or None."""
    namespace, name = object_key(raw)
    if kind == APPS:
        return namespace, name
    labels = raw["metadata"].get("labels") or {}
    app = raw["spec"].get("app") if kind == SAVEPOINTS else labels.get(APP) or labels.get(COLLECTS)
    return (namespace, app) if app else None


class Cache:
    """The watched objects of all kinds. Thread-safe; objects are never changed in place.

    Watches, and the responses to the operator's own writes, put objects into it in any order. An older version never
    replaces a newer one, and a response that arrives after the deletion of an object does not bring it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, dict[Key, Json]] = {APPS: {}, PODS: {}, SAVEPOINTS: {}}
        self._by_app: dict[str, dict[Key, set[Key]]] = {kind: defaultdict(set) for kind in self._objects}
        self._gone: deque[str] = deque(maxlen=_TOMBSTONES)

    def replace(self, kind: str, listed: list[Json]) -> set[Key]:
        """Replace all objects of a kind; return the apps of the objects before and after."""
        with self._lock:
            apps = {app for raw in self._objects[kind].values() if (app := app_key(kind, raw))}
            self._objects[kind], self._by_app[kind] = {}, defaultdict(set)
            for raw in listed:
                self._put(kind, raw)
            return apps | set(self._by_app[kind])

    def put(self, kind: str, raw: Json) -> Key | None:
        """Store an object, unless a newer version is stored or the object was deleted; return its app."""
        with self._lock:
            stored = self._objects[kind].get(object_key(raw))
            exists = raw["metadata"].get("uid") not in self._gone
            if exists and (stored is None or _version(raw) >= _version(stored)):
                self._put(kind, raw)
        return app_key(kind, raw)

    def _put(self, kind: str, raw: Json) -> None:
        key, app = object_key(raw), app_key(kind, raw)
        self._objects[kind][key] = raw
        if app is not None:
            self._by_app[kind][app].add(key)

    def drop(self, kind: str, raw: Json) -> Key | None:
        """Remove a deleted object; return its app."""
        key, app = object_key(raw), app_key(kind, raw)
        with self._lock:
            self._gone.append(raw["metadata"].get("uid", ""))
            self._objects[kind].pop(key, None)
            if app is not None:
                self._by_app[kind][app].discard(key)
        return app

    def raw(self, kind: str, key: Key) -> Json | None:
        """Return an object as the API server sent it; None if it is not cached."""
        with self._lock:
            return self._objects[kind].get(key)

    def of(self, kind: str, app: Key) -> list[Json]:
        """Return the objects of an app, whether or not the app exists."""
        with self._lock:
            return [self._objects[kind][key] for key in self._by_app[kind].get(app, ())]

    def apps(self) -> list[Key]:
        """Return the key of every app."""
        with self._lock:
            return list(self._objects[APPS])

    def find_app(self, key: Key) -> CachedApp | None:
        """Return an app and its observed state; None if the app does not exist."""
        with self._lock:
            raw = self._objects[APPS].get(key)
            parts = {
                kind: [self._objects[kind][k] for k in self._by_app[kind].get(key, ())] for kind in (PODS, SAVEPOINTS)
            }
            others = [(k, o) for k, o in self._objects[APPS].items() if k[0] == key[0] and k != key]
        if raw is None:
            return None
        desired, status = read_app(raw)
        return CachedApp(desired, status, raw["metadata"]["resourceVersion"], _parse_observed(parts, others))


def _parse_observed(parts: dict[str, list[Json]], others: list[tuple[Key, Json]]) -> Observed:
    pods = sorted(parts[PODS], key=lambda raw: str(raw["metadata"]["name"]))
    drivers = tuple(read_pod(raw) for raw in pods if APP in (raw["metadata"].get("labels") or {}))
    collectors = tuple(read_collector(raw) for raw in pods if COLLECTS in (raw["metadata"].get("labels") or {}))
    savepoints = sorted(map(read_savepoint, parts[SAVEPOINTS]), key=lambda savepoint: savepoint.name)
    references = {(raw["spec"].get("restore") or {}).get("from", "") for _, raw in others}
    return Observed(drivers, tuple(savepoints), collectors, frozenset(references - {""}))


def _version(raw: Json) -> int:
    return int(raw["metadata"]["resourceVersion"])
