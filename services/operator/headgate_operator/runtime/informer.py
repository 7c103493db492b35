"""Watches one kind of objects: lists them, follows the changes, and lists again after a failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate_operator.runtime.api_client import ApiError, Json, Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.informer_cache import Cache, Key, object_key

_LOG = logging.getLogger(__name__)
_PAGE = "500"
_PAUSE_S = 1.0


@dataclass
class Informer:
    """Keeps the cache of one kind up to date, in one thread.

    ``on_change`` is called with the app of every changed object. ``synced`` is set after the first list; setting
    ``stop`` ends the watch.
    """

    rest: Rest
    cache: Cache
    kind: str
    namespace: str
    on_change: Callable[[Key], None]
    selector: str = ""
    synced: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start the watch in the background."""
        threading.Thread(target=self.run, name=f"watch-{self.kind}", daemon=True).start()

    def run(self) -> None:
        """Watch until the stop event is set."""
        version = ""
        while not self.stop.is_set():
            try:
                version = self._follow(version or self._list())
            except ApiError as error:
                if error.status != 410:
                    _LOG.warning("watch of %s: %s", self.kind, error)
                version = ""
                self.stop.wait(_PAUSE_S)

    def _list(self) -> str:
        """Replace the cache by all objects, and return the resource version to follow from."""
        query = {"limit": _PAGE} | ({"labelSelector": self.selector} if self.selector else {})
        items: list[Json] = []
        listed = self.rest.get(path(self.kind, self.namespace), **query)
        items += listed["items"]
        while listed["metadata"].get("continue"):
            listed = self.rest.get(
                path(self.kind, self.namespace), **query, **{"continue": listed["metadata"]["continue"]}
            )
            items += listed["items"]
        for app in self.cache.replace(self.kind, items):
            self.on_change(app)
        self.synced.set()
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> str:
        """Put the events after ``version`` into the cache until the watch ends; return the last resource version."""
        query = {"labelSelector": self.selector} if self.selector else {}
        for event, raw in self.rest.watch(path(self.kind, self.namespace), version, **query):
            version = str(raw["metadata"]["resourceVersion"])
            if event == "BOOKMARK":
                continue
            app = self.cache.drop(self.kind, raw) if event == "DELETED" else self.cache.put(self.kind, raw)
            if app is not None:
                self.on_change(app)
            if self.stop.is_set():
                break
        return version


__all__ = ["Informer", "object_key"]
