"""Commands to a running service: one at a time, a newer one replaces the one before.

A command is a JSON object with an ``id``, under which its result is published once::

    {"id": "a1", "command": "savepoint", "name": "before-friday"}    write that savepoint at the next batch boundary
    {"id": "a2", "command": "drain", "savepoint": null}              stop between two batches, with a savepoint if named
    {"id": "a3", "command": "configure", "settings": {...}}          replace all settings without a new process

and to a standby::

    {"id": "b1", "command": "verify", "savepoint": "before-friday"}  check that it is complete, compatible and readable
    {"id": "b2", "command": "promote", "epoch": 3, "restore": null, "allow_empty": false, "discard_newer": false}
                                                                     take over the checkpoint of that epoch and run

``savepoint``, ``drain`` and ``promote`` may carry a ``traceparent`` in W3C format: the span of the sender. An invalid
one is ignored, as are unknown fields.

Shared by the driver and the operator; imports nothing but ``streamcore.errors``. Knows neither how commands arrive
(``channel``) nor how they are executed (``streamcore.service.lifecycle``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamcore.errors import ConfigError

#: The annotation of a driver's pod that holds the command.
COMMAND_ANNOTATION = "headgate.dev/command"
#: The limit on a command; ``configure`` with all settings is the longest.
COMMAND_BYTES = 64 * 1024
#: How the result of a command begins whose name the driver does not know, as an older version may not.
UNKNOWN_COMMAND = "unknown command"


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Write savepoint ``name`` and continue."""

    id: str
    name: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop at a batch boundary; write ``savepoint`` of the final state when one is named."""

    id: str
    savepoint: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Configure:
    """Continue in this process with ``settings``: a complete settings document, as in a settings file."""

    id: str
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Verify:
    """Read ``savepoint`` back. For a standby."""

    id: str
    savepoint: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Take over the checkpoint of ``epoch`` and run. For a standby.

    An existing checkpoint is continued. A missing one is created from the savepoint ``restore``, or empty where
    ``allow_empty``; never beside a newer epoch, unless ``discard_newer``.
    """

    id: str
    epoch: int
    restore: str | None = None
    allow_empty: bool = False
    discard_newer: bool = False
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class InvalidCommand:
    """A command that cannot be parsed, and why. ``id`` is empty when it has none."""

    id: str
    message: str


ValidCommand = TakeSavepoint | Drain | Configure | Verify | Promote
Command = ValidCommand | InvalidCommand


def format_command(command: ValidCommand) -> str:
    """Return the JSON text that ``parse_command`` reads."""
    document: dict[str, object] = {"id": command.id, "command": _NAMES[type(command)]}
    match command:
        case TakeSavepoint():
            document["name"] = command.name
        case Drain() | Verify():
            document["savepoint"] = command.savepoint
        case Configure():
            document["settings"] = dict(command.settings)
        case Promote():
            document |= {
                "epoch": command.epoch,
                "restore": command.restore,
                "allow_empty": command.allow_empty,
                "discard_newer": command.discard_newer,
            }
    traceparent = getattr(command, "traceparent", None)
    return json.dumps(document | ({"traceparent": traceparent} if traceparent else {}), sort_keys=True)


def command_id(text: str | None) -> str:
    """Return the id of a command's text; empty when there is none or it cannot be read."""
    document = _load(text) if text else None
    return str(document.get("id", "")) if document else ""


def parse_command(text: str) -> Command:
    """Parse a command. One that cannot be read is an ``InvalidCommand``, so that its sender gets a result too."""
    document = _load(text) if len(text) <= COMMAND_BYTES else None
    if document is None:
        return InvalidCommand("", f"a command must be a JSON object of at most {COMMAND_BYTES} bytes")
    identity = document.get("id")
    if not isinstance(identity, str) or not 0 < len(identity) <= 128:
        return InvalidCommand("", "a command must have an id, a text of at most 128 characters")
    return _parse(identity, document)


def _load(text: str) -> dict[str, object] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _parse(identity: str, document: Mapping[str, object]) -> Command:
    name = str(document.get("command"))
    parse = _PARSERS.get(name)
    if parse is None:
        return InvalidCommand(identity, f"{UNKNOWN_COMMAND} {name!r}; known commands are {', '.join(_PARSERS)}")
    try:
        return parse(identity, document)
    except ConfigError as error:
        return InvalidCommand(identity, str(error))


def _parse_savepoint(identity: str, document: Mapping[str, object]) -> Command:
    return TakeSavepoint(identity, _required_savepoint(document, "name"), _traceparent(document))


def _parse_drain(identity: str, document: Mapping[str, object]) -> Command:
    return Drain(identity, _savepoint_name(document, "savepoint"), _traceparent(document))


def _parse_promote(identity: str, document: Mapping[str, object]) -> Command:
    epoch = document.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 1:
        raise ConfigError(f"promote: epoch is {epoch!r}; it must be an integer of at least 1")
    allow_empty, discard_newer = (_flag(document, field) for field in ("allow_empty", "discard_newer"))
    restore = _savepoint_name(document, "restore")
    return Promote(identity, epoch, restore, allow_empty, discard_newer, _traceparent(document))


def _parse_verify(identity: str, document: Mapping[str, object]) -> Command:
    return Verify(identity, _required_savepoint(document, "savepoint"))


def _parse_configure(identity: str, document: Mapping[str, object]) -> Command:
    settings = document.get("settings")
    if not isinstance(settings, dict):
        raise ConfigError("configure: settings must be a mapping of names to values")
    return Configure(identity, settings)


def _traceparent(document: Mapping[str, object]) -> str | None:
    """Return the text as it is: telemetry validates it later, so that a bad one never costs the command."""
    text = document.get("traceparent")
    return text if isinstance(text, str) and text else None


def _flag(document: Mapping[str, object], field: str) -> bool:
    value = document.get(field, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{document['command']}: {field} is {value!r}; it must be true or false")
    return value


def _required_savepoint(document: Mapping[str, object], field: str) -> str:
    name = _savepoint_name(document, field)
    if name is None:
        raise ConfigError(f"{document['command']}: {field} is missing; it must name a savepoint")
    return name


def _savepoint_name(document: Mapping[str, object], field: str) -> str | None:
    name = document.get(field)
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{document['command']}: {field} is {name!r}; it must be the name of a savepoint")
    return name


_PARSERS: Mapping[str, Callable[[str, Mapping[str, object]], Command]] = {
    "savepoint": _parse_savepoint,
    "drain": _parse_drain,
    "configure": _parse_configure,
    "verify": _parse_verify,
    "promote": _parse_promote,
}
_NAMES: Mapping[type[ValidCommand], str] = {
    TakeSavepoint: "savepoint",
    Drain: "drain",
    Configure: "configure",
    Verify: "verify",
    Promote: "promote",
}
