"""The interface for patterns over a keyed stream: time, lanes, and the output step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streamcore.arguments import check_type
from streamcore.keyed.call_scope import TimeDomain
from streamcore.limits import PatternLimits
from streamcore.operators.base import LATE
from streamcore.operators.failures import FAILED
from streamcore.patterns.automaton import compile_pattern
from streamcore.patterns.expressions import MatchExpression
from streamcore.patterns.pattern import Pattern
from streamcore.topology.checks.expression_check import check_expression
from streamcore.topology.nodes import KeyedInput, Schema
from streamcore.topology.stream import KeyedStream, Stream, operate
from streamcore.wire.lanes import DEAD_LETTERS
from streamcore.wire.raw import ORIGIN

if TYPE_CHECKING:
    from streamcore.operators.patterns.output import MatchApply, MatchColumns, MatchEvents


@dataclass(frozen=True, eq=False)
class PatternStream:
    """A keyed stream with a pattern. ``select`` and ``apply`` add the step; others return a changed copy."""

    keyed: KeyedInput
    pattern: Pattern
    limits: PatternLimits
    time: TimeDomain = TimeDomain.EVENT
    late_lane: str | None = None
    timed_out_lane: str | None = None
    failed_lane: str = DEAD_LETTERS
    failed_matches_lane: str = DEAD_LETTERS

    def __post_init__(self) -> None:
        check_type("pattern", self.pattern, Pattern, "write such as Pattern.begin('a').where(pl.col('v') > 5)")
        check_type("pattern: limits", self.limits, PatternLimits, "write such as PatternLimits(partials_per_key=100)")

    def in_processing_time(self) -> PatternStream:
        """Look at events in the order in which they arrive, and count time by the clock. No event is late then."""
        return replace(self, time=TimeDomain.CLOCK)

    def late_to(self, lane: str) -> PatternStream:
        """Set the lane of events that the watermark has passed, with the reason; also the side output ``late``.

        Without a lane they are only counted.
        """
        return replace(self, late_lane=lane)

    def timed_out_to(self, lane: str) -> PatternStream:
        """Emit partial matches whose time is over to this lane; also the side output ``timed_out``.

        They have the columns of matches. What ``until`` or a forbidden event ends is not among them.
        """
        return replace(self, timed_out_lane=lane)

    def failed_to(self, lane: str) -> PatternStream:
        """Set the lane of events on which a condition fails; without this call they are dead letters."""
        return replace(self, failed_lane=lane)

    def failed_matches_to(self, lane: str) -> PatternStream:
        """Set the lane of matches on which the function of ``apply`` fails; without this call they are dead letters.

        A row has the key, the match as JSON text in ``match`` and the reason: other columns than failed events have.
        """
        return replace(self, failed_matches_lane=lane)

    def select(self, name: str = "", /, **columns: MatchExpression) -> Stream:
        """Emit a row for each match: the key, and each expression over the match's events in a column of its name.

        ``matched(step)`` has the aggregates, such as ``total=matched("paid").sum("amount")``. ``name``: of the step.
        """
        from streamcore.operators.patterns.output import MatchColumns

        return self._add_operator(name, MatchColumns(columns))

    def apply(
        self,
        function: Callable[[MatchEvents], Iterable[Mapping[str, Any]]],
        schema: Schema,
        *,
        name: str = "",
    ) -> Stream:
        """Emit the rows that a function returns for each match: none, one or several.

        The function gets the events of each step that has any, in order, as dictionaries. ``schema``: the columns of
        the rows, beside those of the key. It must be pure. Every event is kept whole for it, so ``select`` is cheaper.
        """
        from streamcore.operators.patterns.output import MatchApply

        return self._add_operator(name, MatchApply(function, schema))

    def _add_operator(self, name: str, output: MatchColumns | MatchApply) -> Stream:
        from streamcore.operators.patterns.operator import (
            FAILED_MATCH,
            TIMED_OUT,
            PatternOperator,
            check_conditions,
            needed_columns,
        )
        from streamcore.operators.patterns.output import MatchApply

        before = self.keyed.port.schema
        automaton = compile_pattern(self.pattern)
        check_conditions(automaton, before)
        for number, leaf in enumerate(automaton.leaves):
            if number not in automaton.iterative:
                check_expression("pattern: where", leaf)
        needed = needed_columns(automaton, output, before) | {*self.keyed.key, *ORIGIN}
        columns = None if self.late_lane else tuple(column for column in before if column in needed)
        schema = {column: before[column] for column in (before if columns is None else columns)}
        create_operator = partial(
            PatternOperator,
            self.pattern,
            self.keyed.key,
            schema,
            output,
            time=self.time,
            timed_out=self.timed_out_lane is not None,
            limits=self.limits,
        )
        lanes = {FAILED: self.failed_lane}
        lanes |= {LATE: self.late_lane} if self.late_lane else {}
        lanes |= {TIMED_OUT: self.timed_out_lane} if self.timed_out_lane else {}
        lanes |= {FAILED_MATCH: self.failed_matches_lane} if isinstance(output, MatchApply) else {}
        return operate(
            [KeyedStream(replace(self.keyed, columns=columns))],
            "pattern",
            create_operator,
            name=name,
            about=", ".join(self.pattern.step_names),
            side_lanes=lanes,
        )
