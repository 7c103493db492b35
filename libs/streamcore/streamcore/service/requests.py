"""What a running service is asked to do: one request at a time, the newest replaces the one before.

A request is a JSON object with an ``id``, by which it is answered, once::

    {"id": "a1", "do": "savepoint", "name": "before-friday"}     write that savepoint at the next batch boundary, go on
    {"id": "a2", "do": "drain", "savepoint": null}               stop between two batches; a savepoint first, if named
    {"id": "a3", "do": "configure", "settings": {...}}           take these settings, all of them, without a new process

and to a standby::

    {"id": "b1", "do": "verify", "savepoint": "before-friday"}   say whether it is whole, fits, and can be read
    {"id": "b2", "do": "go", "epoch": 3, "restore": null, "begin": false, "accept_newer": false}
                                                                 own the checkpoint of that epoch and run

``savepoint``, ``drain`` and ``go`` may have a ``traceparent``, as W3C writes it: the span that whoever asks is in. One
that is none is passed over, as are fields that nobody here knows.

Knows neither where requests come from (``mailbox``) nor how they are carried out (``life``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from streamcore.errors import ConfigError

#: Settings are the longest that is ever asked.
REQUEST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Write savepoint ``name`` and go on."""

    id: str
    name: str
    traceparent: str | None = None

    def to_json(self) -> str:
        """As whoever asks writes it."""
        return orjson.dumps({"id": self.id, "do": "savepoint", "name": self.name}).decode()


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop exactly; write ``savepoint`` of what was reached, when one is named."""

    id: str
    savepoint: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Configure:
    """Take ``settings``, the whole document as a settings file has it, and go on in this process."""

    id: str
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Verify:
    """To a standby: read ``savepoint`` back."""

    id: str
    savepoint: str


@dataclass(frozen=True, slots=True)
class Go:
    """To a standby: own the checkpoint of ``epoch``, and run. One that is there is gone on with. One that is not is
    made from the savepoint ``restore``, or with nothing if it may ``begin``; never beside something newer, unless that
    is accepted (``accept_newer``)."""

    id: str
    epoch: int
    restore: str | None = None
    begin: bool = False
    accept_newer: bool = False
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A request that says nothing we know. ``id`` is empty when it has none."""

    id: str
    why: str


Request = TakeSavepoint | Drain | Configure | Verify | Go | Unreadable


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
    return TakeSavepoint(identity, _needed(document, "name"), _traceparent(document))


def _drain(identity: str, document: Mapping[str, object]) -> Request:
    return Drain(identity, _name(document, "savepoint"), _traceparent(document))


def _go(identity: str, document: Mapping[str, object]) -> Request:
    epoch = document.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
        raise ConfigError(f"go: epoch is {epoch!r}, not a whole number from 1 on")
    begin, accept_newer = (_is_said(document, field) for field in ("begin", "accept_newer"))
    return Go(identity, epoch, _name(document, "restore"), begin, accept_newer, _traceparent(document))


def _traceparent(document: Mapping[str, object]) -> str | None:
    """Telemetry finds out whether it means something: it must not cost the request."""
    said = document.get("traceparent")
    return said if isinstance(said, str) and said else None


def _verify(identity: str, document: Mapping[str, object]) -> Request:
    return Verify(identity, _needed(document, "savepoint"))


def _configure(identity: str, document: Mapping[str, object]) -> Request:
    settings = document.get("settings")
    if not isinstance(settings, dict):
        raise ConfigError("configure: settings is no mapping of names to values")
    return Configure(identity, settings)


def _is_said(document: Mapping[str, object], field: str) -> bool:
    said = document.get(field, False)
    if not isinstance(said, bool):
        raise ConfigError(f"{document['do']}: {field} is {said!r}, neither true nor false")
    return said


def _needed(document: Mapping[str, object], field: str) -> str:
    name = _name(document, field)
    if name is None:
        raise ConfigError(f"{document['do']}: it names no savepoint")
    return name


def _name(document: Mapping[str, object], field: str) -> str | None:
    name = document.get(field)
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{document['do']}: {field} is {name!r}, not the name of a savepoint")
    return name


_KINDS: Mapping[str, Callable[[str, Mapping[str, object]], Request]] = {
    "savepoint": _savepoint,
    "drain": _drain,
    "configure": _configure,
    "verify": _verify,
    "go": _go,
}
