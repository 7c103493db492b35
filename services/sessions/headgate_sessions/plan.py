"""Checks the names and expressions of the settings, and builds the plan of the topology.

``build_plan`` reports all problems at once. Stage 1 computes from the fields of the stream what windows need of an
event (``SessionPlan.events``); ``SessionPlan.columns`` are computed from the results of a session's aggregates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headgate_sessions.settings import SessionsSettings
from rulecore.errors import ExpressionError
from rulecore.language import (
    AggregateCall,
    Arithmetic,
    Call,
    Case,
    ColumnRef,
    Expr,
    Literal,
    Scope,
    When,
    aggregates,
    columns,
    parse,
    render,
    replace_aggregates,
)
from rulecore.language.functions import SESSION_AGGREGATES
from rulecore.mapping.expressions import ExpressionReader, inline
from rulecore.mapping.problems import Problems
from rulecore.mapping.stage import MappingStage
from rulecore.mapping.types import ComputedField, RowRule
from streamcore.aggregates import (
    Aggregate,
    ApproxDistinct,
    Count,
    CountDistinct,
    First,
    Funnel,
    Last,
    Max,
    Mean,
    Min,
    StdDev,
    Sum,
    Ties,
)
from streamcore.schema import BOOLEAN, LONG, STRING, TIMESTAMP, Kind, StreamSchema, Type

#: Columns of an event after stage 1, beside those of arguments of aggregates.
USER, EVENT_ID, AT, GAP, FUNNEL, PERIOD = "user_id", "event_id", "at", "gap_ms", "funnel", "period"
PAGE, AMOUNT, CURRENCY = "page", "amount", "currency"
#: The code of ISO 4217 for a transaction without a currency.
NO_CURRENCY = "XXX"
#: Columns that every session has and that its own columns may read.
READABLE: Mapping[str, Type] = {
    "user_id": STRING,
    "started_at": TIMESTAMP,
    "ended_at": TIMESTAMP,
    "duration_ms": LONG,
    "events": LONG,
}
FUNNEL_STEP = "funnel_step"
RESERVED = frozenset(
    {*READABLE, "session_id", FUNNEL_STEP, "is_final", "is_deleted", "merged_into", "revision", "reason"}
)


@dataclass(frozen=True)
class OwnColumn:
    """A column of sessions that the settings declare.

    ``expr`` reads ``READABLE`` and the results of aggregates, by their names. ``text``: as the settings have it.
    """

    name: str
    expr: Expr
    text: str


@dataclass(frozen=True)
class SessionPlan:
    """The parts of the topology. ``results``: the types of ``aggregates`` that own columns read, by name."""

    schema: StreamSchema
    events: MappingStage
    aggregates: Mapping[str, Aggregate]
    results: Mapping[str, Type]
    columns: tuple[OwnColumn, ...]
    steps: tuple[str, ...]

    @property
    def inputs(self) -> frozenset[str]:
        """The columns of events that the aggregates read."""
        return frozenset(name for aggregate in self.aggregates.values() for name in aggregate.inputs)


def build_plan(settings: SessionsSettings, schema: StreamSchema) -> SessionPlan:
    """Build the plan. ``ConfigError`` lists everything that is wrong in the settings, one entry per line."""
    problems = Problems()
    plan = find_plan(settings, schema, problems)
    problems.raise_if_any()
    return plan


def find_plan(settings: SessionsSettings, schema: StreamSchema, problems: Problems) -> SessionPlan:
    """Return the plan of the settings without its wrong entries, which ``problems`` gets, all in one go."""
    reader = _PlanReader(settings, problems, {f.name: f.type for f in schema.fields})
    reader.read_derived()
    reader.read_event(schema)
    reader.read_gap()
    reader.read_funnel()
    reader.read_metrics()
    reader.read_columns()
    rules = () if settings.gap.expression is None else (_gap_rule(settings.gap.max_ms),)
    stage = MappingStage(reader.types, tuple(reader.fields.values()), rules)
    steps = tuple(step.name for step in settings.funnel)
    return SessionPlan(schema, stage, reader.aggregates, reader.results, tuple(reader.columns), steps)


def _gap_rule(max_ms: int) -> RowRule:
    text = f"{GAP} between 1 and {max_ms}"
    return RowRule("gap", parse(text, Scope({GAP: LONG}), field="gap"), text)


@dataclass
class _PlanReader:
    """Reads the settings, entry by entry. ``types``: of the fields of the stream; ``known``: the derived values."""

    settings: SessionsSettings
    problems: Problems
    types: Mapping[str, Type]
    known: dict[str, Expr] = field(default_factory=dict)
    fields: dict[str, ComputedField] = field(default_factory=dict)
    aggregates: dict[str, Aggregate] = field(default_factory=dict)
    results: dict[str, Type] = field(default_factory=dict)
    columns: list[OwnColumn] = field(default_factory=list)

    @property
    def _readable(self) -> Mapping[str, Type]:
        return {**self.types, **{name: expr.type for name, expr in self.known.items()}}

    def read_derived(self) -> None:
        """Read ``derive``: a value may read those before it."""
        for name, text in self.settings.derive.items():
            path = f"derive.{name}"
            if name in self.types:
                self.problems.add(path, f"{name!r} is a field of the stream; choose another name")
                continue
            with self.problems.at(path):
                self.known[name] = self._parse(text, path)
            if name not in self.known:
                self.problems.unclear.add(name)

    def read_event(self, schema: StreamSchema) -> None:
        """Read the columns that every event needs."""
        names, time = self.settings.fields, ColumnRef(name=schema.event_time, type=TIMESTAMP)
        self._add(USER, names.user, "fields.user", as_text=True)
        if self.settings.deduplicates and names.event_id is not None:
            self._add(EVENT_ID, names.event_id, "fields.event_id", as_text=True, nullable=False)
        self.fields[AT] = ComputedField(AT, time, TIMESTAMP, nullable=False, text=schema.event_time)
        self.aggregates |= {"events": Count(), "ended_at": Max(AT)}

    def read_gap(self) -> None:
        """Read the gap of an event."""
        if self.settings.gap.expression is not None:
            self._add(GAP, self.settings.gap.expression, "gap.expression", LONG, nullable=False)

    def read_funnel(self) -> None:
        """Read the steps of the funnel: an event has a number with a bit for each step that it is."""
        bits: list[Expr] = []
        for number, step in enumerate(self.settings.funnel):
            path = f"funnel.{number}.when"
            with self.problems.at(path):
                condition = self._parse(step.when, path, BOOLEAN)
                zero, bit = Literal.of(0), Literal.of(1 << number)
                bits.append(Case.of((When(condition=condition, result=bit),), zero))
        if self.settings.funnel and len(bits) == len(self.settings.funnel):
            total = bits[0]
            for one in bits[1:]:
                total = Arithmetic.of("+", total, one)
            text = " / ".join(step.when for step in self.settings.funnel)
            self.fields[FUNNEL] = ComputedField(FUNNEL, total, LONG, nullable=True, text=text)
            self.aggregates[FUNNEL_STEP] = Funnel(FUNNEL, tuple(step.name for step in self.settings.funnel))

    def read_metrics(self) -> None:
        """Read the columns that the metrics need."""
        metrics = self.settings.dashboard_metrics
        if metrics is None:
            return
        if metrics.page is not None:
            self._add(PAGE, metrics.page, "dashboard_metrics.page", as_text=True)
        if metrics.amount is not None:
            path = "dashboard_metrics.amount"
            self._add(AMOUNT, metrics.amount, path, kinds=(Kind.LONG, Kind.DECIMAL))
            currency = metrics.currency if metrics.currency is not None else f"'{NO_CURRENCY}'"
            self._add(CURRENCY, currency, "dashboard_metrics.currency", as_text=True, otherwise=NO_CURRENCY)

    def read_columns(self) -> None:
        """Read the columns of the settings' own."""
        scope = Scope(READABLE, aggregates=True, arguments=self._readable, more_aggregates=SESSION_AGGREGATES)
        for name, text in self.settings.columns.items():
            path = f"columns.{name}"
            if name in RESERVED:
                self.problems.add(path, f"every session has a column {name!r}, or may have; choose another name")
                continue
            with self.problems.at(path):
                expr = parse(text, scope, field=path, expect=None)
                if expr.type.is_nested:
                    raise _wrong(
                        path, text, f"a single value is needed, this is {expr.type}", "a part of it, or a text"
                    )
                if not aggregates(expr) and not columns(expr):
                    raise _wrong(path, text, "a constant is no column of a session", "an aggregate, such as count(*)")
                calls = {call: self._add_aggregate(call) for call in aggregates(expr)}
                self.columns.append(OwnColumn(name, replace_aggregates(expr, calls), text))

    def _add_aggregate(self, call: AggregateCall) -> str:
        """Add an aggregate, and the column of events that it reads; return the name of its result.

        Results have the text of the aggregate as their names, so that state outlives a change of other columns.
        """
        name = render(call)
        self.results[name] = call.type
        self.aggregates[name] = _to_aggregate(call, self._add_argument(call), self.settings.max_distinct)
        return name

    def _add_argument(self, call: AggregateCall) -> str | None:
        if call.argument is None:
            return None
        expr = inline(call.argument, self.known)
        if call.function == "count" and expr.type == BOOLEAN:
            expr = Case.of((When(condition=expr, result=Literal.of(True)),), None)
        text = render(expr)
        name = f"({text})"  # brackets: no column of the engine or of this module has them
        self.fields[name] = ComputedField(name, expr, expr.type, nullable=True, text=text)
        return name

    def _parse(self, text: str, path: str, type_: Type | None = None) -> Expr:
        if type_ is None:
            expr = parse(text, Scope(self._readable), field=path, expect=None)
        elif type_ == BOOLEAN:
            expr = ExpressionReader(self._readable, {}).condition(text, path)
        else:
            expr = ExpressionReader(self._readable, {}).value(text, path, type_)
        return inline(expr, self.known)

    def _add(
        self,
        name: str,
        text: str,
        path: str,
        type_: Type | None = None,
        *,
        kinds: Collection[Kind] = (),
        as_text: bool = False,
        nullable: bool = True,
        otherwise: str = "",
    ) -> None:
        """Add a column of events. ``kinds``: of types that are accepted; ``otherwise``: the text instead of null."""
        with self.problems.at(path):
            expr = self._parse(text, path, type_)
            if kinds and expr.type.kind not in kinds:
                raise _wrong(
                    path, text, f"{' or '.join(kinds)} is needed, this is {expr.type}", "to_decimal(..., 12, 2)"
                )
            if as_text and expr.type != STRING:
                if expr.type.is_nested:
                    raise _wrong(path, text, f"a single value is needed, this is {expr.type}", "a member of it")
                expr = Call.of("to_text", (expr,))
            if otherwise:
                expr = Call.of("coalesce", (expr, Literal.of(otherwise)))
            self.fields[name] = ComputedField(name, expr, expr.type, nullable, text)


def _wrong(path: str, text: str, message: str, hint: str) -> ExpressionError:
    return ExpressionError(message, field=path, text=text, length=len(text), hint=f"accepted here: {hint}")


def _to_aggregate(call: AggregateCall, column: str | None, max_distinct: int) -> Aggregate:
    """Return the aggregate of a call. No result depends on the order of arrival, except the rounding of doubles: of
    values with the same time, ``Ties.VALUE`` takes the smallest as the first and the largest as the last."""
    if column is None:
        return Count()
    match call.function:
        case "count":
            return Count(column)
        case "count_distinct":
            return CountDistinct(column, max_distinct)
        case "approx_count_distinct":
            return ApproxDistinct(column)
        case "first":
            return First(column, Ties.VALUE)
        case "last":
            return Last(column, Ties.VALUE)
        case "sum":
            return Sum(column)
        case "avg":
            return Mean(column)
        case "min":
            return Min(column)
        case "max":
            return Max(column)
        case "stddev":
            return StdDev(column)
        case "seen" | "time_decayed_count" | "time_decayed_sum" | "time_since_last":
            raise AssertionError(f"the scope of a session has no {call.function}")
