"""Whether a savepoint can be restored as another version of its app, and why not: a pure function of two descriptions.

Promises: what a plan lets through, a restore can do; a change that would lose state is reported before anything starts,
and is done only when a person has accepted it. Refuses to know where the savepoint and the app are.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from streamcore.savepoint.manifest import AppDescription, SavepointManifest, StateTableDescription, StoredTable


class Compatibility(enum.StrEnum):
    """From the best to the worst."""

    COMPATIBLE = "compatible"
    MIGRATES = "migrates"
    DECISION = "decision"
    INCOMPATIBLE = "incompatible"


_ORDER = list(Compatibility)

#: What ``RestoreDecisions.accept`` may hold.
UNSETTLED, TOPIC_GONE, CONTROL_MOVED = "unsettled", "topic-gone", "control-moved"
#: An operator that is kept would work with another watermark.
TIME_MOVED = "time-moved"
#: What was written after the savepoint is to be written again. No plan knows of it: the first start finds out.
REWIND = "rewind"
ACCEPTABLE = (UNSETTLED, TOPIC_GONE, CONTROL_MOVED, TIME_MOVED, REWIND)


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding of the check. ``compatibility``: the best result that it allows."""

    compatibility: Compatibility
    text: str

    def __str__(self) -> str:
        return f"{self.compatibility}: {self.text}"


@dataclass(frozen=True, slots=True)
class RestoreDecisions:
    """The decisions of a person: ``drop`` names tables or operators whose state goes, ``accept`` is of
    ``ACCEPTABLE``."""

    drop: frozenset[str] = frozenset()
    accept: frozenset[str] = frozenset()

    def drops(self, table: str) -> bool:
        """Whether this table's rows are to be left out."""
        return table in self.drop or table.partition("/")[0] in self.drop

    @property
    def rewinds(self) -> bool:
        """Whether what was written after the savepoint is to be written again."""
        return REWIND in self.accept


@dataclass(frozen=True, slots=True)
class CompatibilityReport:
    """``stages``: for each stored table that is taken, by its stage and name, the stage that takes it."""

    reasons: tuple[Reason, ...]
    stages: Mapping[tuple[int, str], int] = field(default_factory=dict)

    @property
    def compatibility(self) -> Compatibility:
        """The worst of all reasons."""
        return max(
            (reason.compatibility for reason in self.reasons), key=_ORDER.index, default=Compatibility.COMPATIBLE
        )

    @property
    def possible(self) -> bool:
        """Whether a restore may go ahead."""
        return self.compatibility in (Compatibility.COMPATIBLE, Compatibility.MIGRATES)


def check_compatibility(
    stored: SavepointManifest, app: AppDescription, decisions: RestoreDecisions | None = None
) -> CompatibilityReport:
    """Check whether the savepoint can be restored as ``app``, which ``describe`` returned for the savepoint's
    tables."""
    decided = decisions or RestoreDecisions()
    reasons = [*_identity(stored.app, app), *_sources(stored.app, app, decided.accept), *_places(stored, app)]
    if not stored.settled and UNSETTLED not in decided.accept:
        reasons.append(
            Reason(
                Compatibility.DECISION,
                f"batch {stored.batch + 1} was begun and not finished when this was taken: what it wrote may come "
                f"again; settle and take another one, or accept {UNSETTLED}",
            )
        )
    stages: dict[tuple[int, str], int] = {}
    for table in stored.tables:
        takers = [one for one in app.tables if one.name == table.name]
        reasons += _table(table, takers, decided)
        if takers and not decided.drops(table.name):
            stages[table.stage, table.name] = _taker(table, takers).stage
    reasons += _ambiguous(stages)
    if TIME_MOVED not in decided.accept:
        reasons += _times(stored.app, app)
    reasons += _new(stored, app)
    return CompatibilityReport(tuple(reasons), stages)


def _identity(old: AppDescription, new: AppDescription) -> Iterator[Reason]:
    if old.name != new.name:
        yield Reason(Compatibility.INCOMPATIBLE, f"it is of app {old.name}, and this is {new.name}")
    if old.shards != new.shards:
        yield Reason(
            Compatibility.INCOMPATIBLE,
            f"it has {old.shards} shards, the app is set to {new.shards}; set it to {old.shards}. (Shuffle "
            "partitions may change.)",
        )


def _sources(old: AppDescription, new: AppDescription, accepted: Collection[str]) -> Iterator[Reason]:
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


def _places(stored: SavepointManifest, app: AppDescription) -> Iterator[Reason]:
    """State may name a source partition, and then its topic by its place; operators of topologies do so in a column."""
    from streamcore.schema import PARTITION  # pyarrow comes with it, and who only lists savepoints does without

    moved = [t for place, t in enumerate(app.topics) if t in stored.app.topics and stored.app.topics.index(t) != place]
    naming = [table.name for table in stored.tables if "/" not in table.name or PARTITION in table.columns]
    if moved and naming:
        yield Reason(
            Compatibility.INCOMPATIBLE,
            f"topic {moved[0]} is at place {app.topics.index(moved[0])} among the app's sources and was at "
            f"{stored.app.topics.index(moved[0])}, which {naming[0]} rests on; put new streams after the old ones",
        )


def _table(
    stored: StoredTable, takers: Collection[StateTableDescription], decided: RestoreDecisions
) -> Iterator[Reason]:
    if decided.drops(stored.name):
        yield Reason(Compatibility.COMPATIBLE, f"{_state_label(stored)} is dropped, as decided")
    elif not takers:
        yield Reason(
            Compatibility.DECISION,
            f"nothing in this app takes {_state_label(stored)}; give its operator its old name back, or drop it",
        )
    else:
        yield from _match_table(stored, _taker(stored, takers))


def _state_label(stored: StoredTable) -> str:
    return f"the state {stored.name} ({stored.rows} rows)"


def _taker(stored: StoredTable, takers: Collection[StateTableDescription]) -> StateTableDescription:
    """Of several, that of its own stage."""
    return min(takers, key=lambda one: (one.stage != stored.stage, one.stage))


def _match_table(stored: StoredTable, taker: StateTableDescription) -> Iterator[Reason]:
    current = 1 if taker.version is None else taker.version
    for version in stored.versions:
        if version > current:
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{stored.name}: its rows are of version {version} and this program's of version {current}; use the "
                "newer program, or an older savepoint",
            )
        elif version < current and version not in taker.reads:
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{stored.name}: rows of version {version} cannot be brought to version {current}; give a migration",
            )
        elif version < current:
            yield Reason(
                Compatibility.MIGRATES, f"{stored.name}: {stored.rows} rows go from version {version} to {current}"
            )
    if stored.versions == (current,):
        yield from _columns(stored, taker)


def _columns(stored: StoredTable, taker: StateTableDescription) -> Iterator[Reason]:
    """Rows of one version have one layout; columns that are all null in what is stored may be left out there."""
    for name, wanted in taker.columns.items():
        found = stored.columns.get(name)
        if found != wanted and "Null" not in (found, wanted):
            was = "is not stored" if found is None else f"is stored as {found}"
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{stored.name}: column {name} {was} and wanted as {wanted}; raise the version with a migration, or "
                f"drop {taker.owner}",
            )


def _ambiguous(stages: Mapping[tuple[int, str], int]) -> Iterator[Reason]:
    taken: dict[tuple[int, str], int] = {}
    for (stage, name), target in stages.items():
        if (target, name) in taken:
            yield Reason(
                Compatibility.INCOMPATIBLE,
                f"{name}: stages {taken[target, name]} and {stage} both have such state, and one stage would get both",
            )
        taken[target, name] = stage


def _times(old: AppDescription, new: AppDescription) -> Iterator[Reason]:
    """Yield an operator that waited for less saw more of the time than it will: what it closed then may be open
    again."""
    before = {one.name: one for one in old.operators}
    for now in new.operators:
        was = before.get(now.name, now)
        if set(was.topics) != set(now.topics):
            what = f"waited for the watermark of {', '.join(was.topics)} and would for that of {', '.join(now.topics)}"
        elif was.delay_ms < now.delay_ms:
            what = f"was {was.delay_ms} ms behind the watermark and would be {now.delay_ms} ms behind"
        else:
            continue
        why = "rows that it has seen the end of may be late, or come again"
        yield Reason(Compatibility.DECISION, f"{now.name} {what}: {why}; accept {TIME_MOVED} to go on")


def _new(stored: SavepointManifest, app: AppDescription) -> Iterator[Reason]:
    known = {table.owner for table in stored.app.tables} | {table.name.partition("/")[0] for table in stored.tables}
    for owner in sorted({table.owner for table in app.tables} - known):
        yield Reason(Compatibility.COMPATIBLE, f"{owner} is new: it starts empty")
