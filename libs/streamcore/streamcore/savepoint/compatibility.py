"""Checks whether a savepoint can be restored as a given version of its app: a pure function of two descriptions.

Promises: a restore succeeds if its report is ``possible``. A change that would lose state is reported before the app
starts, and needs the decision of a person. This module reads no files and no kernels.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from streamcore.kernel import DEDUPLICATION
from streamcore.savepoint.manifest import AppDescription, SavepointManifest, StateTableDescription, StoredTable


class Compatibility(enum.StrEnum):
    """The result of the check, from the best to the worst: ``MIGRATES`` converts stored rows to the program's version,
    ``DECISION`` needs a person's decision (``RestoreDecisions``)."""

    COMPATIBLE = "compatible"
    MIGRATES = "migrates"
    DECISION = "decision"
    INCOMPATIBLE = "incompatible"


_ORDER = list(Compatibility)

#: The values of ``RestoreDecisions.accept``. A batch was open; a topic is not read any more; the control topic differs.
UNSETTLED, TOPIC_GONE, CONTROL_MOVED = "unsettled", "topic-gone", "control-moved"
#: An operator with state would see another watermark than before.
TIME_MOVED = "time-moved"
#: Output that was written after the savepoint is written again. No report has this reason: the first start detects it.
REWIND = "rewind"
ACCEPTABLE = (UNSETTLED, TOPIC_GONE, CONTROL_MOVED, TIME_MOVED, REWIND)


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding of the check. ``compatibility``: the best result that a report with this reason can have."""

    compatibility: Compatibility
    text: str

    def __str__(self) -> str:
        return f"{self.compatibility}: {self.text}"


@dataclass(frozen=True, slots=True)
class RestoreDecisions:
    """The decisions of a person.

    ``drop``: names of tables or operators whose state is not restored. ``accept``: accepted changes, of ``ACCEPTABLE``.
    """

    drop: frozenset[str] = frozenset()
    accept: frozenset[str] = frozenset()

    def drops(self, table: str) -> bool:
        """Return whether the rows of this table are not restored."""
        return table in self.drop or table.partition("/")[0] in self.drop

    @property
    def rewinds(self) -> bool:
        """Whether output that was written after the savepoint may be written again."""
        return REWIND in self.accept


@dataclass(frozen=True, slots=True)
class CompatibilityReport:
    """The result of the check, with its reasons.

    ``stages``: the stage of the app that restores a stored table, by the table's stored stage and name. ``copies``: of
    a replicated table, the other stages that restore it too: stored stage, name and stage of the app.
    """

    reasons: tuple[Reason, ...]
    stages: Mapping[tuple[int, str], int] = field(default_factory=dict)
    copies: tuple[tuple[int, str, int], ...] = ()

    @property
    def compatibility(self) -> Compatibility:
        """The worst result among the reasons; ``COMPATIBLE`` without reasons."""
        return max(
            (reason.compatibility for reason in self.reasons), key=_ORDER.index, default=Compatibility.COMPATIBLE
        )

    @property
    def possible(self) -> bool:
        """Whether the savepoint can be restored."""
        return self.compatibility in (Compatibility.COMPATIBLE, Compatibility.MIGRATES)


def check_compatibility(
    stored: SavepointManifest, app: AppDescription, decisions: RestoreDecisions | None = None
) -> CompatibilityReport:
    """Check whether the savepoint can be restored as ``app``, the result of ``describe`` for the savepoint's tables."""
    decided = decisions or RestoreDecisions()
    reasons = [*_identity(stored, app), *_sources(stored.app, app, decided.accept), *_moved_topics(stored, app)]
    if not stored.settled and UNSETTLED not in decided.accept:
        reasons.append(
            Reason(
                Compatibility.DECISION,
                f"batch {stored.batch + 1} was begun and not finished when this was taken: what it wrote may come "
                f"again; settle and take another one, or accept {UNSETTLED}",
            )
        )
    stages: dict[tuple[int, str], int] = {}
    copies: list[tuple[int, str, int]] = []
    for table in stored.tables:
        candidates = [described for described in app.tables if described.name == table.name]
        reasons += _check_table(table, candidates, decided)
        if not candidates or decided.drops(table.name):
            continue
        if not any(one.replicated for one in candidates):
            stages[table.stage, table.name] = _target(table, candidates).stage
            continue
        for stage in _stages_of_copies(table, stored.tables, candidates):
            if stages.setdefault((table.stage, table.name), stage) != stage:
                copies.append((table.stage, table.name, stage))
    reasons += _ambiguous(stages)
    if TIME_MOVED not in decided.accept:
        reasons += _watermarks(stored.app, app)
    reasons += _new_owners(stored, app)
    return CompatibilityReport(tuple(reasons), stages, tuple(copies))


def _identity(stored: SavepointManifest, new: AppDescription) -> Iterator[Reason]:
    """Yield a reason if the apps differ in name or in the division of their keys."""
    old = stored.app
    if old.name != new.name:
        yield Reason(Compatibility.INCOMPATIBLE, f"it is of app {old.name}, and this is {new.name}")
    if (old.shards, old.key_groups) == (new.shards, new.key_groups):
        return
    yield Reason(
        Compatibility.COMPATIBLE, f"{_division(new)} divide its state, which {_division(old)} had; nothing is lost"
    )
    for copies in stored.unequal_copies:
        yield Reason(
            Compatibility.INCOMPATIBLE,
            f"{copies.table} must be equal in all shards to be divided anew, and differs in shards "
            f"{copies.shards[0]} and {copies.shards[1]}; take another savepoint; if they differ again, "
            f"restore it with {old.shards} shards, delete the rule that is in quarantine and publish it again",
        )


def _division(app: AppDescription) -> str:
    return f"{app.shards} shards of {'unknown' if app.key_groups is None else app.key_groups} key groups"


def _sources(old: AppDescription, new: AppDescription, accepted: Collection[str]) -> Iterator[Reason]:
    """Yield a reason for each new topic, and for dropped topics and another control topic unless accepted."""
    for topic in new.topics:
        if topic not in old.topics:
            yield Reason(Compatibility.COMPATIBLE, f"topic {topic} is new: it is read from its beginning")
    gone = [topic for topic in old.topics if topic not in new.topics]
    if gone and TOPIC_GONE not in accepted:
        yield Reason(
            Compatibility.DECISION, f"topics {', '.join(gone)} would not be read any more; accept {TOPIC_GONE} to go on"
        )
    if old.control_topic != new.control_topic and CONTROL_MOVED not in accepted:
        yield Reason(
            Compatibility.DECISION,
            f"control records came from {old.control_topic} and would come from {new.control_topic}, all of it; "
            f"accept {CONTROL_MOVED} to go on",
        )


def _moved_topics(stored: SavepointManifest, app: AppDescription) -> Iterator[Reason]:
    """Yield a reason if a topic has another index than before and stored rows may contain source partitions, whose
    numbers encode the index of the topic.

    Tables of a topology have source partitions only in the column ``PARTITION``; other tables may have them anywhere.
    """
    from streamcore.schema import PARTITION  # here, because it imports pyarrow, which listing savepoints does without

    moved = [t for t in app.topics if t in stored.app.topics and stored.app.topics.index(t) != app.topics.index(t)]
    affected = [table.name for table in stored.tables if "/" not in table.name or PARTITION in table.columns]
    if moved and affected:
        yield Reason(
            Compatibility.INCOMPATIBLE,
            f"topic {moved[0]} is at place {app.topics.index(moved[0])} among the app's sources and was at "
            f"{stored.app.topics.index(moved[0])}, which {affected[0]} rests on; put new streams after the old ones",
        )


def _check_table(
    stored: StoredTable, candidates: Collection[StateTableDescription], decided: RestoreDecisions
) -> Iterator[Reason]:
    """Yield the reasons of one stored table. ``candidates``: the app's tables with this name, at most one per stage."""
    if decided.drops(stored.name):
        yield Reason(Compatibility.COMPATIBLE, f"{_state_label(stored)} is dropped, as decided")
    elif not candidates and stored.name.startswith(f"{DEDUPLICATION}-"):
        yield Reason(
            Compatibility.COMPATIBLE,
            f"{_state_label(stored)} is dropped: its stream has no deduplicate any more, and each event is used",
        )
    elif not candidates:
        yield Reason(
            Compatibility.DECISION,
            f"nothing in this app takes {_state_label(stored)}; give its operator its old name back, or drop it",
        )
    else:
        yield from _match_table(stored, _target(stored, candidates))


def _state_label(stored: StoredTable) -> str:
    return f"the state {stored.name} ({stored.rows} rows)"


def _target(stored: StoredTable, candidates: Collection[StateTableDescription]) -> StateTableDescription:
    """Return the table that the stored rows are restored to: that of the stored stage, else that of the first stage."""
    return min(candidates, key=lambda candidate: (candidate.stage != stored.stage, candidate.stage))


def _stages_of_copies(
    table: StoredTable, stored: Collection[StoredTable], candidates: Collection[StateTableDescription]
) -> list[int]:
    """Return the stages of the app that restore a replicated table from these rows: a stage takes those of its own
    number, else those of the first stage that has some, for all have the same."""
    known = sorted(one.stage for one in stored if one.name == table.name)
    takers = sorted(one.stage for one in candidates)
    return [taker for taker in takers if (taker if taker in known else known[0]) == table.stage]


def _match_table(stored: StoredTable, target: StateTableDescription) -> Iterator[Reason]:
    """Yield a reason for each stored version of rows that the program migrates or cannot read, and for columns that
    differ."""
    current = 1 if target.version is None else target.version
    for version in stored.versions:
        if version > current:
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{stored.name}: its rows are of version {version} and this program's of version {current}; use the "
                "newer program, or an older savepoint",
            )
        elif version < current and version not in target.reads:
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{stored.name}: rows of version {version} cannot be brought to version {current}; give a migration",
            )
        elif version < current:
            yield Reason(
                Compatibility.MIGRATES, f"{stored.name}: {stored.rows} rows go from version {version} to {current}"
            )
    if stored.versions == (current,):
        yield from _columns(stored, target)


def _columns(stored: StoredTable, target: StateTableDescription) -> Iterator[Reason]:
    """Yield a reason for each column whose stored type is not that of the target. All rows are of the target's version.

    Type ``Null`` fits any type: the column has only nulls.
    """
    for name, wanted in target.columns.items():
        stored_type = stored.columns.get(name)
        if stored_type != wanted and "Null" not in (stored_type, wanted):
            was = "is not stored" if stored_type is None else f"is stored as {stored_type}"
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{stored.name}: column {name} {was} and wanted as {wanted}; raise the version with a migration, or "
                f"drop {target.owner}",
            )


def _ambiguous(stages: Mapping[tuple[int, str], int]) -> Iterator[Reason]:
    """Yield a reason if two stored tables would be restored to one table of a stage."""
    taken: dict[tuple[int, str], int] = {}
    for (stage, name), target in stages.items():
        if (target, name) in taken:
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{name}: stages {taken[target, name]} and {stage} both have such state, and one stage would get both",
            )
        taken[target, name] = stage


def _watermarks(old: AppDescription, new: AppDescription) -> Iterator[Reason]:
    """Yield a reason for each operator whose watermark would be another, or further behind.

    Such an operator may have closed windows for a later watermark than the one that it would then see.
    """
    before = {operator.name: operator for operator in old.operators}
    for now in new.operators:
        was = before.get(now.name, now)
        if set(was.topics) != set(now.topics):
            change = (
                f"waited for the watermark of {', '.join(was.topics)} and would for that of {', '.join(now.topics)}"
            )
        elif was.delay_ms < now.delay_ms:
            change = f"was {was.delay_ms} ms behind the watermark and would be {now.delay_ms} ms behind"
        else:
            continue
        why = "rows that it has seen the end of may be late, or come again"
        yield Reason(Compatibility.DECISION, f"{now.name} {change}: {why}; accept {TIME_MOVED} to go on")


def _new_owners(stored: SavepointManifest, app: AppDescription) -> Iterator[Reason]:
    """Yield a reason for each operator, or table without operator, of which the savepoint has no state."""
    known = {table.owner for table in stored.app.tables} | {table.name.partition("/")[0] for table in stored.tables}
    for owner in sorted({table.owner for table in app.tables} - known):
        yield Reason(Compatibility.COMPATIBLE, f"{owner} is new: it starts empty")
