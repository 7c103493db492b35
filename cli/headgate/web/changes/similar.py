"""Events like those that a rule is about: the newest records of its topics for which its condition, or all but one of
its clauses, is TRUE.

One call reads a piece of the topics, backwards from where the call before has ended. A page shows the progress between
calls, and cancels by not calling again; the console keeps no state of a search.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from headgate.backtest.sources import TopicRange, topic_batches
from headgate.records.formats import read_formats
from headgate.records.inputs import find_input
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.settings import ConsoleApp
from headgate.web.state.app_reader import Snapshot, limit_wait
from headgate.web.state.values import ClauseValue, SimilarEventValue, SimilarValue
from rulecore import language as lang
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.explain.condition import Truth, show_value
from rulecore.explain.event import parse_conditions, trace_event
from rulecore.explain.rule import latest_event_ms
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from rulecore.lists.content import ListContent
from rulecore.lists.scalar import logical_lists
from rulecore.lists.snapshots import with_columns_for
from rulecore.streams import RuleInput
from rulecore.union_events import unite_events
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import TopicPartition
from streamcore.schema import EVENT_MS

_PIECE = 10_000  # records of one call
_SHOWN = 10  # events of one call that satisfy the condition, and as many that do not
_VALUES = 24  # fields of an event that are shown
_CHARACTERS = 120  # of a value


@dataclass(frozen=True, slots=True)
class SimilarSearch:
    """What to look for. ``most``: the most records that a whole search reads; ``piece``: those of one call."""

    kafka: KafkaSettings
    app: ConsoleApp
    snapshot: Snapshot
    rule: CompiledRule
    most: int
    piece: int = _PIECE


@dataclass(frozen=True, slots=True)
class _Judged:
    """Events with the number of clauses of a condition that are not TRUE."""

    condition: str
    clauses: int
    missed: pl.Series


def find_similar(search: SimilarSearch, before: Mapping[str, int] | None = None) -> SimilarValue:
    """Search one piece of the rule's topics. ``before``: where to go on, ``next`` of the call before.

    Raises ``ProblemError`` if the rule has no condition on single events, or ``before`` names another topic.
    """
    snapshot, rule, kafka = search.snapshot, search.rule, limit_wait(search.kafka)
    source = find_input(rule.rule.on, snapshot.history.rules.streams, (), read_formats(search.app.settings))
    conditions = {} if rule.features else parse_conditions(rule, source.schema, snapshot.history.lists.types())
    if not conditions:
        detail = f"rule {rule.rule.id} has no condition on single events that an event could be like"
        detail += "; its condition reads features, which a back-test computes" if rule.features else ""
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, detail)
    wanted, left = _choose_range(search, source, before)
    found, counts = list[tuple[int, SimilarEventValue]](), dict.fromkeys(("decoded", "satisfied", "near"), 0)
    candidates = None
    now_ms, formats = int(time.time() * 1000), read_formats(search.app.settings)
    for _, batch in topic_batches(kafka, wanted, source, now_ms, formats, search.piece):
        events = unite_events(source, batch.events)
        if not events.height:
            continue
        contents = snapshot.history.lists.contents(latest_event_ms(events))
        judged = [_judge(name, expr, events, contents) for name, expr in conditions.items()]
        fits, near = _rows(judged)
        counts["decoded"] += events.height
        counts["satisfied"] += int(fits.sum())
        counts["near"] += int((near & ~fits).sum())
        cost = _count_candidates(rule, events)
        candidates = candidates if cost is None else (candidates or 0) + cost
        found += _show(events.filter(fits), source, conditions, contents)
        found += _show(events.filter(near & ~fits), source, conditions, contents)
    found.sort(key=lambda one: (one[1].satisfied, one[0]), reverse=True)
    ended = not any(wanted.start[place] > floor for place, floor in left.items())
    return SimilarValue(
        events=tuple(one for kind in (True, False) for _, one in [f for f in found if f[1].satisfied is kind][:_SHOWN]),
        read=wanted.records,
        left=sum(wanted.start[place] - floor for place, floor in left.items()),
        candidates=candidates,
        next=None if ended else {f"{topic}:{number}": at for (topic, number), at in wanted.start.items()},
        **counts,
    )


def _choose_range(
    search: SimilarSearch, source: RuleInput, before: Mapping[str, int] | None
) -> tuple[TopicRange, Mapping[TopicPartition, int]]:
    """Return the records to read now, and the first offset of each partition that the whole search reads."""
    ends = KafkaPartitionOffsets(limit_wait(search.kafka), [*dict.fromkeys(source.topics)])
    first, last = ends.earliest(), ends.latest()
    share, piece = (max(1, count // max(1, len(last))) for count in (search.most, search.piece))
    floor = {place: max(first[place], end - share) for place, end in last.items()}
    named = {f"{topic}:{number}": (topic, number) for topic, number in last}
    if before is not None and (unknown := before.keys() - named.keys()):
        detail = f"before: {', '.join(sorted(unknown))}: {search.rule.rule.id} reads {', '.join(sorted(named))}"
        raise ProblemError(422, ProblemCode.INVALID_REQUEST, detail)
    given = {place: (before or {}).get(name, last[place]) for name, place in named.items()}
    end = {place: max(floor[place], min(at, last[place])) for place, at in given.items()}
    return TopicRange({place: max(floor[place], at - piece) for place, at in end.items()}, end), floor


def _judge(name: str, condition: Expr, events: pl.DataFrame, contents: Mapping[str, ListContent]) -> _Judged:
    terms = lang.conjuncts(condition)
    missed = pl.zeros(events.height, pl.UInt32, eager=True)
    for term in terms:
        frame, lifted = with_columns_for(events, term, contents)
        false = ~(to_polars(lifted).fill_null(value=False) & pl.int_range(pl.len()).is_not_null())
        missed = missed + frame.select(false.cast(pl.UInt32).alias("false"))["false"]
    return _Judged(name, len(terms), missed)


def _rows(judged: list[_Judged]) -> tuple[pl.Series, pl.Series]:
    """Return which events satisfy a condition, and which all of its clauses but one, of two or more."""
    fits = near = pl.repeat(value=False, n=len(judged[0].missed), dtype=pl.Boolean, eager=True)
    for one in judged:
        fits = fits | (one.missed == 0)
        near = near | ((one.missed == 1) if one.clauses > 1 else near)
    return fits, near


def _count_candidates(rule: CompiledRule, events: pl.DataFrame) -> int | None:
    """Return for how many events the rule's condition would be checked; None for a rule without an index of events."""
    if rule.kind is not RuleKind.EVENT or rule.plan is None or rule.lists:
        return None
    from rulecore.matching.matcher import EventMatcher

    return int(EventMatcher([rule]).match(events).candidates.sum())


def _show(
    events: pl.DataFrame, source: RuleInput, conditions: Mapping[str, Expr], contents: Mapping[str, ListContent]
) -> Iterator[tuple[int, SimilarEventValue]]:
    """Yield the newest of the events, with their times."""
    types, lists = {field.name: field.type for field in source.schema.fields}, logical_lists(contents)
    for row in events.sort(EVENT_MS).tail(_SHOWN).iter_rows(named=True):
        trace = trace_event(row, source, conditions, lists)
        missed = {
            name: [one for one in c.leaves() if one.truth is not Truth.TRUE] for name, c in trace.conditions.items()
        }
        name = min(missed, key=lambda one: (trace.conditions[one].truth is not Truth.TRUE, len(missed[one])))
        satisfied = trace.conditions[name].truth is Truth.TRUE
        shown = {n: show_value(v, types[n])[:_CHARACTERS] for n, v in trace.values.items() if v is not None}
        origin = trace.origin
        yield (
            origin.event_ms,
            SimilarEventValue(
                at=f"{origin.topic}:{origin.partition}:{origin.offset}",
                time_ms=origin.event_ms,
                condition=name,
                satisfied=satisfied,
                clauses=() if satisfied else tuple(ClauseValue.of(one) for one in missed[name]),
                values=dict([*shown.items()][:_VALUES]),
            ),
        )
