"""Finds a pattern in the events of each key (``streamcore.patterns``), in order of event time or as they arrive.

*By event time* an event waits until the watermark has passed it; then all events before it are known, and the results
depend neither on disorder nor on cuts. Events of one time are in order of arrival. An event behind the watermark is
late: it takes no part and goes to port ``LATE``. *By processing time* events are looked at as they arrive, at the time
of the clock of their cut, and limits of time are by the clock.

Ports: ``MAIN`` has the rows of matches, ``TIMED_OUT`` those of partial matches whose time was over, ``LATE`` late
events, ``FAILED`` events on which a condition fails, and ``FAILED_MATCH`` matches on which a function fails. A row of a
match has the key, the columns of the output, and as ``EVENT_MS`` the time at which the match was certain: that of its
last event, or the deadline that made it so. Rows are in order of time, then of the hash of the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from streamcore.arguments import check_type
from streamcore.calls import CALL_ERRORS, failure_reason
from streamcore.errors import ConfigError
from streamcore.keyed.call_scope import TimeDomain
from streamcore.limits import PatternLimits
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime, Ports
from streamcore.operators.failures import FAILED, FAILED_REASON
from streamcore.operators.patterns.output import MatchApply, MatchColumns, MatchRows, check_match_condition
from streamcore.operators.patterns.waiting_events import BITS, NUMBER, WaitingEvents
from streamcore.patterns.automaton import Automaton, compile_pattern
from streamcore.patterns.engine import Match, MatchEngine, PatternEvents
from streamcore.patterns.expressions import MatchExpression
from streamcore.patterns.match_store import Ints
from streamcore.patterns.pattern import Pattern
from streamcore.schema import EVENT_MS
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.scope import REPLICATED
from streamcore.state.table import StateTable
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.lanes import DeadLetterCode
from streamcore.wire.raw import ORIGIN

#: The port of partial matches whose time was over.
TIMED_OUT: Final = "timed_out"
#: The port of matches on which a function fails: the key, the events as JSON text and the reason.
FAILED_MATCH: Final = DeadLetterCode.FAILED_MATCH.value
MATCH: Final = "match"

_PATTERN: Final = 0
_STRUCTURE: Final = "structure"
_LATE: Final = "the watermark has passed the event"


class PatternOperator:
    """The operator of a pattern. It has one input.

    ``schema``: the columns of the input without ``EVENT_MS``. ``timed_out``: whether timed-out partial matches are
    emitted. ``time``: ``EVENT`` or ``CLOCK``.
    """

    def __init__(
        self,
        pattern: Pattern,
        key: Sequence[str],
        schema: Mapping[str, pl.DataType],
        output: MatchColumns | MatchApply,
        *,
        time: TimeDomain = TimeDomain.EVENT,
        timed_out: bool = False,
        limits: PatternLimits | None = None,
    ) -> None:
        self.automaton: Automaton = compile_pattern(pattern)
        check_conditions(self.automaton, schema)
        self.key = tuple(key)
        self._schema = dict(schema)
        self._output, self._time = output, time
        self.limits = limits or PatternLimits()
        keys = {name: self._schema[name] for name in self.key}
        self._events = {name: dtype for name, dtype in self._schema.items() if name in output.needs(self._schema)}
        reads = {r.column for c in self.automaton.iterative.values() for r in c.reads if r.column}
        candidates = {name for c in self.automaton.iterative.values() for name in c.columns}
        kept = {name: self._schema[name] for name in self._schema if name in reads or name in self._events}
        self._values = {name: self._schema[name] for name in self._schema if name in candidates or name in kept}
        self._engine = MatchEngine(keys, kept, self.limits)
        self._engine.set_patterns({_PATTERN: self.automaton}, frozenset([_PATTERN]) if timed_out else frozenset())
        self._timed_out = timed_out
        wanted = {*self.key, *needed_columns(self.automaton, output, self._schema)}
        if self.automaton.iterative:  # such a condition may fail after the wait
            wanted |= {*ORIGIN}
        waiting = {name: dtype for name, dtype in self._schema.items() if name in wanted}
        self._waiting = WaitingEvents({**waiting, EVENT_MS: pl.Int64()}, self.key, self._bits)
        self._meta = KeyValueTable(REPLICATED)
        self._counts = dict.fromkeys(("late", "waiting_dropped", "failed", "timed_out", "matches"), 0)

    @property
    def output_delay_ms(self) -> int:
        """Return 0: a match is certain at a time that the watermark had not passed before."""
        return 0

    # --- Operator -----------------------------------------------------------------------------------------------

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        (rows,) = inputs
        self._engine.store.resolve()
        self._waiting.drop_before(time.watermark_ms)
        if time.next_watermark_ms > NO_WATERMARK:
            self._meta.put(_STRUCTURE, self.automaton.structure.encode())
        late = rows.clear()
        if self._time is TimeDomain.EVENT:
            is_late = rows[EVENT_MS] < time.watermark_ms
            rows, late = rows.filter(~is_late), rows.filter(is_late)
        rows, failed = self._with_bits(rows)
        rows = self._relevant(rows)
        if self._time is TimeDomain.CLOCK:
            passed, until_ms = rows.with_columns(pl.lit(time.clock_ms, pl.Int64).alias(EVENT_MS)), time.clock_ms
            order = pl.int_range(pl.len(), dtype=pl.Int64).alias(NUMBER)
            passed = passed.with_columns(order)
        else:
            self._waiting.add(rows)
            passed, until_ms = self._waiting.release(time.next_watermark_ms), time.next_watermark_ms
            self._counts["waiting_dropped"] += self._waiting.limit_fresh(
                self.limits.waiting_per_key, self.limits.waiting
            )
        passed, key_slots = self._in_order(passed)
        matches = self._engine.run(self._batch(passed, key_slots) if passed.height else None, until_ms)
        failed = pl.concat([failed, self._failed_in_matches(passed)], how="diagonal")
        self._counts["failed"] += failed.height
        return {**self._match_ports(matches), LATE: self._late(late, time.watermark_ms), FAILED: failed}

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables: of partial matches, of their events, of waiting events, and of the pattern's structure."""
        store = self._engine.store
        return {"partials": store.partials, "events": store.events, "waiting": self._waiting, "pattern": self._meta}

    def on_state_loaded(self) -> None:
        """Raise ``ConfigError`` if the stored partial matches are those of a pattern with other steps."""
        stored = self._meta.get(_STRUCTURE)
        if stored is not None and stored.decode() != self.automaton.structure:
            raise ConfigError(
                f"pattern: the stored partial matches are of a pattern with other steps ({stored.decode()}), and this "
                f"one is {self.automaton.structure}; give the step another name, and it begins anew"
            )

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call, and the partial matches in memory."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        dropped, self._engine.dropped = self._engine.dropped, 0
        return counts | {"partials_dropped": dropped, "partials": len(self._engine.store)}

    # --- events -------------------------------------------------------------------------------------------------

    def _bits(self, rows: pl.DataFrame) -> pl.Series:
        """Return the simple conditions that each row satisfies, as bits; raises what an expression raises."""
        bits = np.zeros(rows.height, np.int64)
        simple = [(n, leaf) for n, leaf in enumerate(self.automaton.leaves) if n not in self.automaton.iterative]
        if simple and rows.height:
            columns = rows.select(leaf.fill_null(value=False).alias(str(n)) for n, leaf in simple)
            for number, _ in simple:
                bits |= columns[str(number)].cast(pl.Int64).to_numpy() << number
        return pl.Series(BITS, bits)

    def _with_bits(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows with their bits, and those on which a condition fails, with the reason."""
        good, failed = (
            [rows.clear().with_columns(pl.lit(0, pl.Int64).alias(BITS))],
            [rows.clear().with_columns(pl.lit(None, pl.String).alias(FAILED_REASON))],
        )
        parts = [rows] if rows.height else []
        while parts:
            part = parts.pop()
            try:
                good.append(part.with_columns(self._bits(part)))
            except CALL_ERRORS as error:
                if part.height == 1:
                    reason = failure_reason("pattern condition", error)
                    failed.append(part.with_columns(pl.lit(reason).alias(FAILED_REASON)))
                else:
                    half = part.height // 2
                    parts += [part[half:], part[:half]]
        return pl.concat(good), pl.concat(failed)

    def _relevant(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that can change something: an event that no step is about needs not wait."""
        distinct = rows[BITS].unique().to_list()
        inert = [bits for bits in distinct if self.automaton.is_inert(bits)]
        return rows.filter(~pl.col(BITS).is_in(inert)) if inert else rows

    def _in_order(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
        """Return the rows in order of key slot, then of time and arrival, and their key slots."""
        key_slots = self._engine.store.keys.assign(rows)
        order = np.lexsort((rows[NUMBER].to_numpy(), rows[EVENT_MS].to_numpy(), key_slots))
        return rows[order], key_slots[order]

    def _batch(self, rows: pl.DataFrame, key_slots: Ints) -> PatternEvents:
        return PatternEvents(
            key_slots,
            rows[EVENT_MS].to_numpy(),
            rows.select([*self._values]),
            np.zeros(rows.height, np.int64),
            np.arange(rows.height),
            rows[BITS].to_numpy(),
        )

    def _failed_in_matches(self, passed: pl.DataFrame) -> pl.DataFrame:
        """Return the rows on which a condition over earlier events fails, with the reason, in order of arrival."""
        reasons = {row: reason for (_, row), reason in self._engine.failed.items()}
        rows = passed[[*reasons]].with_columns(pl.Series(FAILED_REASON, [*reasons.values()], dtype=pl.String))
        own = [name for name in rows.columns if name in self._schema]
        return rows.sort(EVENT_MS, NUMBER).select(*own, EVENT_MS, FAILED_REASON)

    def _late(self, late: pl.DataFrame, watermark_ms: int) -> pl.DataFrame:
        self._counts["late"] += late.height
        return late.with_columns(pl.lit(_LATE).alias(LATE_REASON), (watermark_ms - pl.col(EVENT_MS)).alias(LATENESS_MS))

    # --- matches ------------------------------------------------------------------------------------------------

    def _match_ports(self, matches: Sequence[Match]) -> dict[str, pl.DataFrame]:
        store = self._engine.store
        key_slots = np.array([m.key_slot for m in matches], np.int64)
        times = np.array([m.time_ms for m in matches], np.int64)
        order = np.lexsort(
            (np.arange(len(matches)), store.keys.hashes[key_slots] if len(matches) else key_slots, times)
        )
        main, timed_out = (MatchRows(self._output, self._events) for _ in range(2))
        failed: list[tuple[int, str, str]] = []
        for number in order.tolist():
            match = matches[number]
            by_step = self._by_step(match)
            rows = timed_out if match.timed_out else main
            reason = rows.add(number, by_step, self._read_node)
            if reason is not None:
                failed.append((number, self._as_json(by_step), reason))
            self._counts["timed_out" if match.timed_out else "matches"] += 1
        self._counts["failed"] += len(failed)
        ports = {MAIN: self._rows(main.frame(), main.sources, key_slots, times)}
        if self._timed_out:
            ports[TIMED_OUT] = self._rows(timed_out.frame(), timed_out.sources, key_slots, times)
        if isinstance(self._output, MatchApply):
            frame = pl.DataFrame(
                [(text, reason) for _, text, reason in failed],
                schema={MATCH: pl.String(), FAILED_REASON: pl.String()},
                orient="row",
            )
            ports[FAILED_MATCH] = self._rows(frame, [number for number, _, _ in failed], key_slots, times)
        return ports

    def _by_step(self, match: Match) -> dict[str, list[int]]:
        by_step: dict[str, list[int]] = {}
        steps = self._engine.store.nodes.step
        for node in match.nodes:
            by_step.setdefault(self.automaton.steps[steps[node]], []).append(node)
        return by_step

    def _read_node(self, node: int, column: str) -> Any:
        return self._engine.store.nodes.value(column, node)

    def _as_json(self, by_step: Mapping[str, list[int]]) -> str:
        match = {
            step: [{name: self._read_node(node, name) for name in self._events} for node in nodes]
            for step, nodes in by_step.items()
        }
        return json.dumps(match, default=str)

    def _rows(self, frame: pl.DataFrame, sources: list[int], key_slots: Ints, times: Ints) -> pl.DataFrame:
        index = np.array(sources, np.int64)
        keys = self._engine.store.keys.frame(key_slots[index])
        own = [column for column in keys.get_columns() if column.name not in frame.columns]
        return pl.DataFrame([*own, *frame.get_columns(), pl.Series(EVENT_MS, times[index], dtype=pl.Int64)])


def needed_columns(
    automaton: Automaton, output: MatchColumns | MatchApply, schema: Mapping[str, pl.DataType]
) -> set[str]:
    """Return the columns of events that a pattern's conditions and its output read."""
    needed = output.needs(schema)
    for number, leaf in enumerate(automaton.leaves):
        if number in automaton.iterative:
            needed |= {*leaf.columns} | {read.column for read in leaf.reads if read.column}
        else:
            needed |= {*leaf.meta.root_names()}
    return needed


def check_conditions(automaton: Automaton, schema: Mapping[str, pl.DataType]) -> None:
    """Raise ``ConfigError`` for a condition that is none, or that reads a column that there is not."""
    rows = pl.DataFrame(schema=schema)
    for number, leaf in enumerate(automaton.leaves):
        if number in automaton.iterative:
            names = {*leaf.columns} | {read.column for read in leaf.reads if read.column}
            if missing := sorted(names - {*schema}):
                raise ConfigError(f"pattern: {leaf!r}: the stream has no columns {missing}; it has {[*schema]}")
            if isinstance(leaf, MatchExpression):
                check_match_condition(leaf, schema)
            continue
        check_type("pattern: where", leaf, pl.Expr, f"write such as pl.col('v') > 5, or a {MatchExpression.__name__}")
        try:
            dtype = rows.select(leaf.alias("condition"))["condition"].dtype
        except CALL_ERRORS as error:
            raise ConfigError(f"pattern: where {leaf}: {error}; the stream has {[*schema]}") from error
        if dtype != pl.Boolean:
            raise ConfigError(f"pattern: where {leaf}: it gives {dtype}; write a condition, which is true or false")
