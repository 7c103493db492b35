"""What a running service is asked to do: one request at a time, the newest replaces the one before.

A request is a JSON object with an ``id``, by which it is answered, once::

    {"id": "a1", "do": "savepoint", "name": "before-friday"}     write that savepoint at the next batch boundary, go on
    {"id": "a2", "do": "drain", "savepoint": null}               stop between two batches; a savepoint first, if named
    {"id": "a3", "do": "go", "epoch": 3, "restore": null}        to a standby: own the checkpoint and run

Knows neither where requests come from (``mailbox``) nor how they are carried out (``life``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from streamcore.errors import ConfigError

REQUEST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Write savepoint ``name`` and go on."""

    id: str
    name: str

    def to_json(self) -> str:
        """As whoever asks writes it."""
        return orjson.dumps({"id": self.id, "do": "savepoint", "name": self.name}).decode()


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop exactly; write ``savepoint`` of what was reached, when one is named."""

    id: str
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class Go:
    """To a standby: own the checkpoint in ``epoch``, restored from the savepoint ``restore`` when one is named."""

    id: str
    epoch: int
    restore: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A request that says nothing we know. ``id`` is empty when it has none."""

    id: str
    why: str


Request = TakeSavepoint | Drain | Go | Unreadable


def parse_request(text: str) -> Request:
    """The request; what cannot be read is ``Unreadable``, for it must be answered too."""
    try:
        document = orjson.loads(text) if len(text) <= REQUEST_BYTES else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return Unreadable("", f"a request is a JSON object of at most {REQUEST_BYTES} bytes")
    identity = document.get("id")
    if not isinstance(identity, str) or not 0 < len(identity) <= 128:
        return Unreadable("", "a request has an id, a text of at most 128 characters")
    return _read(identity, document)


def _read(identity: str, document: Mapping[str, object]) -> Request:
    kind = str(document.get("do"))
    read = _KINDS.get(kind)
    if read is None:
        return Unreadable(identity, f"nobody here can do {kind!r}; known are {', '.join(_KINDS)}")
    try:
        return read(identity, document)
    except ConfigError as error:
        return Unreadable(identity, str(error))


def _savepoint(identity: str, document: Mapping[str, object]) -> Request:
    name = _name(document, "name")
    if name is None:
        raise ConfigError("savepoint: it has no name")
    return TakeSavepoint(identity, name)


def _drain(identity: str, document: Mapping[str, object]) -> Request:
    return Drain(identity, _name(document, "savepoint"))


def _go(identity: str, document: Mapping[str, object]) -> Request:
    epoch = document.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
        raise ConfigError(f"go: epoch is {epoch!r}, not a whole number from 1 on")
    return Go(identity, epoch, _name(document, "restore"))


def _name(document: Mapping[str, object], field: str) -> str | None:
    name = document.get(field)
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{document['do']}: {field} is {name!r}, not the name of a savepoint")
    return name


_KINDS: Mapping[str, Callable[[str, Mapping[str, object]], Request]] = {
    "savepoint": _savepoint,
    "drain": _drain,
    "go": _go,
}
