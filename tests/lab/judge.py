"""Compares all topics of a round with the oracle. Each difference is one line; a round without one passes.

Laws that need no oracle: no alert id twice; each control record is answered once; a batch has one version of ``upd``,
the one that its own control records and those before it say, and versions never go back; the records of a batch are
one run in a partition, without a gap, and two batches are two transactions; a marker is there once.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.lab import oracle
from tests.lab.events import Event, Placed
from tests.lab.oracle import Alert
from tests.lab.rules import SEVERITIES, UPD

_SHOWN = 4
T = TypeVar("T")
#: Fields of an alert that the cut decides, or that are checked by themselves.
_UNCOMPARED = ("alert_id", "rules_epoch")
_OF_VERSION = ("version", "severity", "score")


@dataclass(frozen=True, slots=True)
class Read:
    """A committed record. ``epoch`` and ``batch``: of its headers."""

    partition: int
    offset: int
    value: bytes | None
    epoch: int = 0
    batch: int = 0

    @property
    def body(self) -> Alert:
        """Return the value as a JSON object."""
        found = json.loads(self.value or b"null")
        assert isinstance(found, dict), f"no object at {self.partition}/{self.offset}"
        return found


@dataclass(frozen=True, slots=True)
class Evidence:
    """All committed records of a round. ``sent``: the ids of the events that were sent."""

    topic: str
    sent: Sequence[int]
    events: Sequence[Read]
    control: Sequence[Read]
    lanes: Mapping[str, Sequence[Read]]
    markers: Sequence[Read]


@dataclass(slots=True)
class Verdict:
    """``lost`` and ``extra``: alerts that are missing, and that are too many or wrong."""

    expected: int = 0
    seen: int = 0
    lost: int = 0
    extra: int = 0
    doubled: int = 0
    control: int = 0
    versions: int = 0
    differences: list[str] = field(default_factory=list)


def judge(evidence: Evidence) -> Verdict:
    """Return the figures and the differences of a round."""
    verdict = Verdict(control=len(evidence.control))
    _judge_input(evidence, verdict)
    _judge_alerts(evidence, verdict)
    _judge_control(evidence, verdict)
    _judge_versions(evidence, verdict)
    for name in ("late", "deadletters", "shadow"):
        if records := evidence.lanes[name]:
            first = (records[0].value or b"")[:200].decode(errors="replace")
            verdict.differences.append(f"{len(records)} records on {name}: {first}")
    _judge_batches(evidence, verdict)
    return verdict


def read_events(records: Iterable[Read]) -> list[Placed]:
    """Return the events of the input topic."""
    return [Placed(r.partition, r.offset, Event(**json.loads(r.value or b""))) for r in records]


def _judge_input(evidence: Evidence, verdict: Verdict) -> None:
    """Check that each event was sent once."""
    counts = Counter(json.loads(r.value or b"")["id"] for r in evidence.events)
    _compare(verdict, "input", Counter(evidence.sent), counts)


def _judge_alerts(evidence: Evidence, verdict: Verdict) -> None:
    wanted = Counter(map(_line, oracle.alerts(evidence.topic, read_events(evidence.events))))
    bodies = [record.body for record in evidence.lanes["alerts"]]
    found = Counter(map(_line, bodies))
    verdict.expected, verdict.seen = wanted.total(), found.total()
    verdict.lost, verdict.extra = _compare(verdict, "alerts", wanted, found)
    repeated = [name for name, count in Counter(body["alert_id"] for body in bodies).items() if count > 1]
    verdict.doubled = len(repeated)
    if repeated:
        verdict.differences.append(f"{len(repeated)} alert ids are there more than once: {repeated[:_SHOWN]}")


def _line(alert: Alert) -> str:
    left_out = {*_UNCOMPARED, *(_OF_VERSION if alert["rule"] == UPD else ())}
    return json.dumps({k: v for k, v in alert.items() if k not in left_out}, sort_keys=True)


def _judge_control(evidence: Evidence, verdict: Verdict) -> None:
    """Answers of other subjects (a comparison, a quarantine) have no control record, and there are none."""
    answered = Counter(_control_offset(record) for record in evidence.lanes["status"])
    _compare(verdict, "answers", Counter(record.offset for record in evidence.control), answered)


def _control_offset(record: Read) -> int:
    """Return the offset that a status answers, -1 if it answers none."""
    control = record.body.get("control")
    return int(control["offset"]) if isinstance(control, dict) else -1


def _judge_versions(evidence: Evidence, verdict: Verdict) -> None:
    """Check that the version in a batch is the last one that was accepted up to that batch."""
    answers = [(r.epoch, r.batch, r.body) for r in evidence.lanes["status"]]
    accepted = [(e, b, int(str(a["version"]))) for e, b, a in answers if a["rule"] == UPD and a["status"] == "accepted"]
    verdict.versions = len({version for *_, version in accepted})
    wrong = []
    for record in evidence.lanes["alerts"]:
        alert = record.body
        if alert["rule"] == UPD:
            wanted = max((v for e, b, v in accepted if (e, b) <= (record.epoch, record.batch)), default=0)
            if [alert[name] for name in _OF_VERSION] != [wanted, SEVERITIES[wanted % 3], wanted % 100]:
                wrong.append(f"batch {record.batch} has {[alert[n] for n in _OF_VERSION]}, not version {wanted}")
    if wrong:
        verdict.differences.append(f"{len(wrong)} alerts of another version: {wrong[:_SHOWN]}")


def _judge_batches(evidence: Evidence, verdict: Verdict) -> None:
    wrong: list[str] = []
    written: set[tuple[int, int]] = set()
    for lane, records in evidence.lanes.items():
        written |= {(r.epoch, r.batch) for r in records}
        for partition, run in _by(records, lambda r: r.partition):
            wrong += [f"{lane}/{partition} {text}" for text in _breaks(sorted(run, key=lambda r: r.offset))]
    batches = Counter(int((r.value or b"").split()[0]) for r in evidence.markers)
    wrong += [f"marker {batch} is there {count} times" for batch, count in batches.items() if count > 1]
    wrong += [f"batch {batch} wrote and has no marker" for _, batch in sorted(written) if batch not in batches]
    if wrong:
        verdict.differences.append(f"{len(wrong)} transactions are wrong: {wrong[:_SHOWN]}")


def _breaks(run: Sequence[Read]) -> Iterator[str]:
    """Yield violations of transactions: a commit leaves a control record, so there is a gap between two batches."""
    for before, after in itertools.pairwise(run):
        if (after.epoch, after.batch) < (before.epoch, before.batch):
            yield f"batch {after.batch} comes after {before.batch}"
        elif after.batch == before.batch and after.offset != before.offset + 1:
            yield f"batch {after.batch} was committed in parts at {after.offset}"
        elif after.batch != before.batch and after.offset == before.offset + 1:
            yield f"batches {before.batch} and {after.batch} are one transaction at {after.offset}"


def _by(records: Iterable[Read], key: Callable[[Read], int]) -> Iterable[tuple[int, list[Read]]]:
    groups: dict[int, list[Read]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return groups.items()


def _compare(verdict: Verdict, what: str, wanted: Counter[T], found: Counter[T]) -> tuple[int, int]:
    """Return how many are missing and how many are too many, and note some of them."""
    missing, extra = wanted - found, found - wanted
    if missing or extra:
        some = [*(f"- {one}" for one in itertools.islice(missing, _SHOWN))]
        some += [f"+ {one}" for one in itertools.islice(extra, _SHOWN)]
        counts = f"of {wanted.total()} {missing.total()} are missing, {extra.total()} too many"
        verdict.differences.append(f"{what}: {counts}: {some}")
    return missing.total(), extra.total()
