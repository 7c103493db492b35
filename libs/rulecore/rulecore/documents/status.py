"""The records of the status lane: replies to control records, and changes of a rule without a control record."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from streamcore.codes import Code
from streamcore.engine.publication import is_stream, read_subject
from streamcore.kernel import ControlRecord
from streamcore.wire.lanes import STATUS, Record

if TYPE_CHECKING:
    from streamcore.engine.document_changes import DocumentAnswer

REASON_CHARACTERS: Final = 2_000
NAME_CHARACTERS: Final = 100


class StatusKind(Code):
    """The outcome of a control record, or the new state of a version."""

    ACCEPTED = (
        "accepted",
        "The rule, feature, list, release, backfill, policy or document is valid and takes effect with this batch.",
        "Nothing.",
    )
    REJECTED = (
        "rejected",
        "The document is invalid, or the rule set is full. The previous version stays live.",
        "Correct what `reason` names, and publish again. `headgate rules check` finds most errors before.",
    )
    DELETED = (
        "deleted",
        "A rule, feature, list, decision policy or part of a release is removed, or there was none to remove.",
        "Nothing.",
    )
    QUARANTINED = (
        "quarantined",
        "The evaluation of a version fails, or it exceeds a budget of matches or state, so the shard evaluates it no "
        "more and drops its state. A control record of the app itself then puts it into quarantine on all shards.",
        "Read `reason`, and publish a changed version.",
    )
    EFFECTIVE = ("effective", "The clock has reached the start of the version's time.", "Nothing.")
    EXPIRED = (
        "expired",
        "The clock has reached the end of the version's time.",
        "Publish a version with a later end if it is still needed.",
    )
    STAGED = (
        "staged",
        "A part of a release is kept until the release itself arrives.",
        "Nothing; `headgate rules release` sends all parts.",
    )
    PROPOSED = (
        "proposed",
        "A proposal is signed and valid, and waits for the approvals that a policy asks for.",
        "Another subject approves it: `headgate rules approve`.",
    )
    COMPARED = (
        "compared",
        "Counts of a version on trial beside the live version are reported, every `compare_every_ms`.",
        "Decide with the counts whether the trial version goes live.",
    )


class Subject(enum.StrEnum):
    """The kind of thing that a status is about."""

    RULE = "rule"
    RELEASE = "release"
    PART = "part"
    LIST = "list"
    BACKFILL = "backfill"
    STREAM = "stream"
    DOCUMENT = "document"
    DECISION_POLICY = "decision_policy"
    FEATURE = "feature"
    SIGNER = "signer"
    POLICY = "policy"
    PROPOSAL = "proposal"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True)
class IncompleteCounts:
    """The aggregates that a new version is the first to need, and which lack earlier events.

    ``since_ms``: by column of an aggregate, the event time from which it is complete. ``counts_from``: by topic
    and partition, the first offset that it counts.
    """

    since_ms: Mapping[str, int]
    counts_from: Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """A status. ``name``: the id or name of the subject. ``version``: that of the rule or list; None without one.

    ``partition`` and ``offset``: those of the control record; the offset is -1 for a change without a record.
    ``release``: the release that a rule came with. ``compared``: the counts of ``StatusKind.COMPARED``, by name.
    ``by``: who has signed the change, and who has approved it; None for one that nobody has signed.
    """

    name: str
    version: int | None
    status: StatusKind
    reason: str | None
    rules_epoch: int
    partition: int
    offset: int
    subject: Subject = Subject.RULE
    mode: str | None = None
    release: str | None = None
    compared: Mapping[str, int] | None = None
    incomplete: IncompleteCounts | None = None
    by: str | None = None


def as_reply(status: RuleStatus, record: ControlRecord, epoch: int = 0) -> RuleStatus:
    """Return the status as the reply to this record, with name and reason cut. ``epoch``: that of the rule set."""
    return replace(
        status,
        name=status.name[:NAME_CHARACTERS],
        reason=None if status.reason is None else status.reason[:REASON_CHARACTERS],
        rules_epoch=epoch,
        partition=record.partition,
        offset=record.offset,
    )


def answer_status(answer: DocumentAnswer) -> RuleStatus:
    """Return the status that answers a published document."""
    kind = StatusKind.ACCEPTED if answer.accepted else StatusKind.REJECTED
    subject = Subject.STREAM if is_stream(answer.record) else Subject.DOCUMENT
    name = read_subject(answer.record)
    return as_reply(RuleStatus(name, answer.version, kind, answer.reason, 0, 0, 0, subject), answer.record)


def status_record(status: RuleStatus) -> Record:
    """Return the record for the status lane, keyed by the name of its subject."""
    body: dict[str, object] = {
        "subject": status.subject.value,
        "rule": status.name,
        "version": status.version,
        "status": status.status.value,
        "mode": status.mode,
        "reason": status.reason,
        "release": status.release,
        "rules_epoch": status.rules_epoch,
        "control": {"partition": status.partition, "offset": status.offset},
    }
    if status.by is not None:
        body["by"] = status.by
    if status.compared is not None:
        body["compared"] = dict(status.compared)
    if status.incomplete is not None:
        offsets = {
            topic: {str(partition): offset for partition, offset in by_partition.items()}
            for topic, by_partition in status.incomplete.counts_from.items()
        }
        body["incomplete"] = {"since_ms": dict(status.incomplete.since_ms), "counts_from": offsets}
    return Record(STATUS, status.name.encode(), orjson.dumps(body))
