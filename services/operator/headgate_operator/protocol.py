"""What a driver is asked and what it says: two annotations of its pod, JSON each.

A request replaces the one before it and is answered by its id, once. Reading is forgiving: a report that is no
report is none, for a driver's mistake must not stop the operator.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

REQUEST = "headgate.dev/request"
REPORT = "headgate.dev/report"


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``savepoint``: of ``savepoint``, ``drain`` and ``verify``. ``epoch`` and what follows: of ``go``.
    ``settings``: of ``configure``, the whole document that a new pod would read. ``traceparent``: as W3C writes it, the
    span of an upgrade that it belongs to; a driver that does not know it passes it over.
    """

    id: str
    do: str
    savepoint: str = ""
    epoch: int = 0
    restore: str = ""
    begin: bool = False
    accept_newer: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    traceparent: str = ""

    def text(self) -> str:
        """As the annotation's value."""
        traced = {"traceparent": self.traceparent} if self.traceparent else {}
        return json.dumps({"id": self.id, "do": self.do} | _ENTRIES[self.do](self) | traced, sort_keys=True)


_ENTRIES: Mapping[str, Callable[[Request], dict[str, object]]] = {
    "savepoint": lambda asked: {"name": asked.savepoint},
    "drain": lambda asked: {"savepoint": asked.savepoint or None},
    "verify": lambda asked: {"savepoint": asked.savepoint},
    "configure": lambda asked: {"settings": dict(asked.settings)},
    "go": lambda asked: {
        "epoch": asked.epoch,
        "restore": asked.restore or None,
        "begin": asked.begin,
        "accept_newer": asked.accept_newer,
    },
}


@dataclass(frozen=True, slots=True)
class Sealed:
    """A savepoint that a driver has written."""

    name: str
    batch: int
    epoch: int
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """``newer``: (epoch, batch) of the newest checkpoint, which a ``go`` would have left behind or begun over, and was
    refused for; batch -1 before the first. ``retry``: a no that is not for good: something was away, or the
    lease is still held.
    """

    ok: bool
    message: str = ""
    savepoint: Sealed | None = None
    newer: tuple[int, int] | None = None
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What restoring would mean: ``compatible``, ``migrates``, ``decision`` or ``incompatible``."""

    verdict: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a driver says of itself. ``committed``: batches since it began."""

    phase: str
    version: str = ""
    epoch: int = 0
    batch: int = -1
    committed: int = 0
    lag_rows: int = 0
    lag_s: float = 0.0
    at_ms: int = 0
    plan: Plan | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    message: str = ""


def request_id(text: str | None) -> str:
    """The id of the request in an annotation; empty when there is none."""
    entries = _mapping(text)
    return str(entries.get("id", "")) if entries else ""


def parse_report(text: str | None) -> Report | None:
    """The report in an annotation, or none."""
    entries = _mapping(text)
    if not entries or not isinstance(entries.get("phase"), str):
        return None
    answers = entries.get("answers")
    return Report(
        phase=str(entries["phase"]),
        version=str(entries.get("version") or ""),
        epoch=_int(entries.get("epoch"), 0),
        batch=_int(entries.get("batch"), -1),
        committed=_int(entries.get("committed"), 0),
        lag_rows=_int(entries.get("lag_rows"), 0),
        lag_s=float(_int(entries.get("lag_s"), 0)),
        at_ms=_int(entries.get("at_ms"), 0),
        plan=_plan(entries.get("plan")),
        answers={k: _answer(v) for k, v in answers.items()} if isinstance(answers, dict) else {},
        message=str(entries.get("message") or "")[:1_000],
    )


def _mapping(text: str | None) -> dict[str, object]:
    try:
        entries = json.loads(text) if text else {}
    except ValueError:
        return {}
    return entries if isinstance(entries, dict) else {}


def _int(entry: object, missing: int) -> int:
    return int(entry) if isinstance(entry, int | float) else missing


def _plan(entry: object) -> Plan | None:
    if not isinstance(entry, dict):
        return None
    reasons = entry.get("reasons")
    return Plan(str(entry.get("verdict", "")), tuple(map(str, reasons)) if isinstance(reasons, list) else ())


def _answer(entry: object) -> Answer:
    said = entry if isinstance(entry, dict) else {}
    newer = said.get("newer")
    return Answer(
        ok=said.get("ok") is True,
        message=str(said.get("message") or "")[:1_000],
        savepoint=_sealed(said.get("savepoint")),
        newer=(_int(newer.get("epoch"), 0), _int(newer.get("batch"), -1)) if isinstance(newer, dict) else None,
        retry=said.get("retry") is True,
    )


def _sealed(entry: object) -> Sealed | None:
    if not isinstance(entry, dict):
        return None
    return Sealed(
        str(entry.get("name", "")),
        _int(entry.get("batch"), -1),
        _int(entry.get("epoch"), 0),
        str(entry.get("digest", "")),
        _int(entry.get("bytes"), 0),
    )
