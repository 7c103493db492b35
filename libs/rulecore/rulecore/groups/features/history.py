"""The features of one set of key columns: the values that they read at the events of a cut, and their state.

``read`` computes without changing the state; ``write`` then adds the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from rulecore.compile.feature import FIRST_FUNCTIONS, LATEST_FUNCTIONS, VALUE_FUNCTIONS, CompiledFeature
from rulecore.groups.features.arrivals import Ints, KeyedArrivals, Mask
from rulecore.groups.features.decay import TimeDecay
from rulecore.groups.features.distinct import DistinctTimes
from rulecore.groups.features.first import FirstTable
from rulecore.groups.features.latest import TIME, VALUE, LatestTable, ValueTimes
from rulecore.groups.features.panes import FeaturePanes, PaneSpans
from rulecore.groups.windows.aggregation import Aggregation, Array
from rulecore.groups.windows.pane_runs import EntryRanges
from rulecore.groups.windows.pane_table import PANE, PaneRows
from rulecore.language.columnar.compiler import to_polars
from rulecore.state_size import StateSize
from streamcore.columnar.key_slots import KeySlots
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import EVENT_MS
from streamcore.state import StateTable

_COUNTED = "__counted"
_WITHOUT_PANES = FIRST_FUNCTIONS | LATEST_FUNCTIONS | VALUE_FUNCTIONS


@dataclass(frozen=True, slots=True)
class StoredFeature:
    """A feature as it is stored: once for all rules, with the longest time back of them.

    ``name``: of its state. ``counts_event``: a condition on an event beside that of the feature; None counts all.
    """

    name: str
    feature: CompiledFeature
    panes: int
    counts_event: pl.Expr | None = field(default=None, compare=False)

    @property
    def aggregation(self) -> Aggregation:
        """How panes hold it; for a feature of panes only."""
        argument = self.feature.argument
        return Aggregation(self.name, self.feature.function, None if argument is None else argument.type)

    @property
    def value_type(self) -> pl.DataType | None:
        """The type of its argument in columns."""
        argument = self.feature.argument
        return None if argument is None else polars_type(argument.type)

    @property
    def decay(self) -> TimeDecay | None:
        """How an event loses weight with time, if it does."""
        half_life = self.feature.half_life_ms
        return None if half_life is None else TimeDecay(half_life, self.feature.pane_ms)

    def with_decay(self, contributions: pl.DataFrame, times: Ints) -> pl.DataFrame:
        """Return the contributions of events at these times as of the beginning of their panes."""
        if self.decay is None:
            return contributions
        own, weights = self.aggregation, pl.Series(self.decay.within_pane(times))
        return contributions.with_columns(contributions[own.column(own.partials[1])] * weights)

    def expressions(self) -> list[pl.Expr]:
        """Return the contributions of each event to the feature as columns, without the decay of time."""
        where, argument = self.feature.where, self.feature.argument
        every = pl.col(EVENT_MS).is_not_null()  # gives a literal the frame's height
        counts = every if where is None else to_polars(where).fill_null(value=False) & every
        counts = counts if self.counts_event is None else counts & self.counts_event
        value = None if argument is None else to_polars(argument)
        if self.feature.function == "time_decayed_count":
            value = pl.lit(1.0)
        if self.feature.function not in _WITHOUT_PANES:
            return self.aggregation.contributions(counts, value)
        present = counts if value is None else counts & value.is_not_null()
        columns = [present.alias(_COUNTED)]
        return columns if value is None else [*columns, pl.when(every).then(value).alias(VALUE)]

    def first_pane(self, watermark_ms: int) -> int:
        """Return the oldest pane that an event from the watermark on may read."""
        return watermark_ms // self.feature.pane_ms - self.panes + 1


@dataclass(slots=True)
class Reading:
    """The events of a cut in one ``History``.

    ``added``: by state, the contributions of each sorted event. ``spans``, ``ranges``: by length and number of panes.
    For the features of values, by state: ``values``, the events that have a value, by value; ``by_event``, for each
    sorted event its index in them, or -1.
    """

    arrivals: KeyedArrivals
    added: Mapping[str, pl.DataFrame]
    spans: dict[tuple[int, int], PaneSpans] = field(default_factory=dict)
    ranges: dict[tuple[int, int], EntryRanges] = field(default_factory=dict)
    values: dict[str, KeyedArrivals] = field(default_factory=dict)
    by_event: dict[str, Ints] = field(default_factory=dict)

    def find_spans(self, pane_ms: int, panes: int) -> PaneSpans:
        """Return the spans of features with this length and number of panes."""
        if (pane_ms, panes) not in self.spans:
            self.spans[pane_ms, panes] = PaneSpans.of(self.arrivals, self.arrivals.times // pane_ms, panes)
        return self.spans[pane_ms, panes]

    def counted(self, name: str) -> Mask:
        """Return whether each sorted event counts in a feature without panes. ``name``: of its state."""
        counted: Mask = self.added[name][_COUNTED].to_numpy()
        return counted

    def counted_values(self, name: str) -> Mask:
        """Return whether each event of ``values`` counts."""
        present = self.by_event[name] >= 0
        counted = np.zeros(len(self.values[name].times), bool)
        counted[self.by_event[name][present]] = self.counted(name)[present]
        return counted


class History:
    """The past of the keys of one set of columns. ``dtypes``: of these columns."""

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.keys = KeySlots(dtypes)
        self.features: dict[str, StoredFeature] = {}
        self.panes: dict[int, FeaturePanes] = {}
        self.first: dict[str, FirstTable] = {}
        self.latest: dict[str, LatestTable] = {}
        self.values: dict[str, ValueTimes] = {}
        self._in_use = 0  # keys with state, at the last look

    def set_features(self, features: Sequence[StoredFeature]) -> None:
        """Keep exactly these features; a new one begins without a past."""
        self.features = {one.name: one for one in features}
        by_pane: dict[int, list[StoredFeature]] = {}
        first, latest, values = {}, {}, {}
        for one in features:
            function = one.feature.function
            if function in LATEST_FUNCTIONS:
                dtype = one.value_type if function == "last" else None
                latest[one.name] = self.latest.get(one.name) or LatestTable(self.keys, dtype)
            elif function in FIRST_FUNCTIONS:
                first[one.name] = self.first.get(one.name) or self._new_first(one)
            elif function in VALUE_FUNCTIONS:
                values[one.name] = self.values.get(one.name) or self._new_values(one)
            else:
                by_pane.setdefault(one.feature.pane_ms, []).append(one)
        self.panes = {ms: self.panes.get(ms) or FeaturePanes(self.keys, ms) for ms in by_pane}
        self.first, self.latest, self.values = first, latest, values
        self.drop_unknown()

    def _new_first(self, one: StoredFeature) -> FirstTable:
        dtype = one.value_type
        assert dtype is not None, "it has an argument"
        return FirstTable(self.keys, dtype, one.feature.pane_ms)

    def _new_values(self, one: StoredFeature) -> ValueTimes:
        dtype = one.value_type
        assert dtype is not None, "it has an argument"
        if one.feature.function == "seen":
            return ValueTimes(self.keys.dtypes, dtype)
        return DistinctTimes(self.keys, dtype, one.feature.pane_ms)

    # --- a cut --------------------------------------------------------------------------------------------------

    def arrive(self, frame: pl.DataFrame) -> Reading:
        """Return the events of a cut as ``read`` and ``write`` need them. May raise what evaluation raises."""
        arrivals = KeyedArrivals.sort(self.keys.assign(frame), frame[EVENT_MS].to_numpy())
        ordered = frame[arrivals.order]
        added = self._contributions(ordered, arrivals.times)
        reading = Reading(arrivals, added)
        for name, table in self.values.items():
            columns = added[name]
            present = np.flatnonzero(columns[VALUE].is_not_null().to_numpy())
            keyed = ordered.select(list(table.by)).with_columns(columns[VALUE])[present]
            reading.values[name] = table.arrive(keyed, arrivals.times[present])
            reading.by_event[name] = np.full(len(arrivals.times), -1)
            reading.by_event[name][present] = reading.values[name].place
        return reading

    def _contributions(self, events: pl.DataFrame, times: Ints) -> Mapping[str, pl.DataFrame]:
        """Return by state the contributions of each event. What features have in common is computed once."""
        expressions = {name: one.expressions() for name, one in self.features.items()}
        every = [expression for own in expressions.values() for expression in own]
        columns = iter(events.select(one.alias(str(number)) for number, one in enumerate(every)).get_columns())
        found = {}
        for name, own in expressions.items():
            frame = pl.DataFrame([next(columns).alias(one.meta.output_name()) for one in own])
            found[name] = self.features[name].with_decay(frame, times)
        return found

    def read(self, reading: Reading, name: str, feature: CompiledFeature) -> pl.Series:
        """Return the value of a feature at each event, in order of arrival. ``name``: of its state."""
        function, this = feature.function, feature.including_this
        if function in LATEST_FUNCTIONS:
            found = self._read_latest(reading, name, feature)
        elif function == "seen":
            found = self._read_seen(reading, name, feature)
        elif function == "count_distinct":
            found = self._read_distinct(reading, name, feature)
        elif function in FIRST_FUNCTIONS:
            spans, values = reading.find_spans(feature.pane_ms, feature.panes), reading.added[name][VALUE]
            found = self.first[name].read(spans, reading.arrivals, reading.counted(name), values, including_this=this)
        else:
            found = self._read_panes(reading, name, feature)
        return found.gather(reading.arrivals.place).alias(feature.column)

    def _read_panes(self, reading: Reading, name: str, feature: CompiledFeature) -> pl.Series:
        spans, one = reading.find_spans(feature.pane_ms, feature.panes), self.features[name]
        own, this = one.aggregation, feature.including_this
        window, panes = (feature.pane_ms, feature.panes), self.panes[feature.pane_ms]
        if window not in reading.ranges:
            reading.ranges[window] = panes.ranges(spans)
        added = _arrays(reading.added[name])
        totals = dict(panes.read(spans, reading.ranges[window], added, one.decay, including_this=this))
        if one.decay is not None:
            _, total, latest = map(own.column, own.partials)
            totals[total] *= one.decay.from_pane(reading.arrivals.times, totals[latest])
        return own.result(totals)

    def _read_latest(self, reading: Reading, name: str, feature: CompiledFeature) -> pl.Series:
        arrivals, table, this = reading.arrivals, self.latest[name], feature.including_this
        counted = reading.counted(name)
        times = table.times(arrivals, counted, including_this=this)
        alive = pl.Series(_is_within(times, arrivals.times, feature))
        if feature.function == "time_since_last":
            found = pl.Series("found", arrivals.times - np.where(alive.to_numpy(), times, 0))
        else:
            found = table.values(arrivals, counted, reading.added[name][VALUE], including_this=this)
        return found.zip_with(alive, pl.Series(found.name, [None], dtype=found.dtype))

    def _read_distinct(self, reading: Reading, name: str, feature: CompiledFeature) -> pl.Series:
        table = self.values[name]
        assert isinstance(table, DistinctTimes)
        spans = reading.find_spans(feature.pane_ms, feature.panes)
        by_event = np.where(reading.counted(name), reading.by_event[name], -1)
        return pl.Series(table.count(spans, reading.values[name], by_event, including_this=feature.including_this))

    def _read_seen(self, reading: Reading, name: str, feature: CompiledFeature) -> pl.Series:
        values, by_event = reading.values[name], reading.by_event[name]
        present, counted = by_event >= 0, reading.counted_values(name)
        times = self.values[name].times(values, counted, including_this=feature.including_this)
        seen = np.zeros(len(present), bool)
        seen[present] = _is_within(times, values.times, feature)[by_event[present]]
        found = pl.Series("found", seen)
        return found.zip_with(pl.Series(present), pl.Series("found", [None], dtype=pl.Boolean))

    def write(self, reading: Reading) -> None:
        """Add the events to the state."""
        arrivals = reading.arrivals
        for pane_ms, panes in self.panes.items():
            values: dict[str, Array] = {}
            for name, one in self.features.items():
                if one.feature.pane_ms == pane_ms and one.feature.function not in _WITHOUT_PANES:
                    values |= _arrays(reading.added[name])
            panes.write(arrivals, arrivals.times // pane_ms, values)
        for name, table in self.latest.items():
            value = reading.added[name][VALUE] if table.dtype is not None else None
            table.write(arrivals, reading.counted(name), value)
        for name, first in self.first.items():
            first.write(arrivals, reading.counted(name), reading.added[name][VALUE])
        for name, times in self.values.items():
            times.write(reading.values[name], reading.counted_values(name))

    def expire(self, watermark_ms: int) -> None:
        """Drop the state that no event from the watermark on may read, and the keys that are left without state."""
        dropped = False
        for pane_ms, panes in self.panes.items():
            own = [one for one in self.features.values() if one.feature.pane_ms == pane_ms]
            before = len(panes.runs)
            panes.expire(min(one.first_pane(watermark_ms) for one in own))
            dropped |= len(panes.runs) < before
        for name, table in self._event_tables():
            one = self.features[name]
            dropped |= table.expire(one.first_pane(watermark_ms) * one.feature.pane_ms)
        if dropped or len(self.keys) > 2 * self._in_use + 4_096:
            used = self._used()
            self.keys.keep(used)
            self._in_use = len(used)

    def drop_unknown(self) -> None:
        """Drop the columns and panes of features that no rule has any more."""
        for pane_ms, panes in self.panes.items():
            own = [one for one in self.features.values() if one.feature.pane_ms == pane_ms]
            panes.keep_aggregations([one.aggregation for one in own if one.feature.function not in _WITHOUT_PANES])

    def _used(self) -> Ints:
        """Return the key slots that have state, in ascending order."""
        used = [table.used() for table in self.panes.values()]
        used += [table.used() for table in self.first.values()]
        used += [table.used() for table in self.latest.values()]
        used += [table.used() for table in self.values.values() if isinstance(table, DistinctTimes)]
        in_use = np.zeros(self.keys.size, bool)
        for slots in used:
            in_use[slots] = True
        return np.flatnonzero(in_use)

    def _event_tables(self) -> list[tuple[str, FirstTable | LatestTable | ValueTimes]]:
        return [*self.first.items(), *self.latest.items(), *self.values.items()]

    # --- backfill -----------------------------------------------------------------------------------------------

    def backfill_types(self, name: str) -> Mapping[str, pl.DataType]:
        """Return the columns of the rows of a feature beside those of the key. ``name``: of its state."""
        one = self.features[name]
        if one.feature.function not in _WITHOUT_PANES:
            partials = one.aggregation.partials
            return {PANE: pl.Int64(), **{p.suffix: pl.Int64() if p.whole else pl.Float64() for p in partials}}
        value = {} if one.value_type is None else {VALUE: one.value_type}
        return {PANE: pl.Int64(), TIME: pl.Int64(), **value}

    def backfill_rows(self, name: str) -> pl.DataFrame:
        """Return all rows of a feature, with the columns of ``backfill_types``."""
        one = self.features[name]
        rows = self.tables()[self.table_name(name)].rows(0, 1)
        if one.feature.function not in _WITHOUT_PANES:
            own, (counter, *_) = one.aggregation, one.aggregation.partials
            rows = rows.rename({own.column(p): p.suffix for p in own.partials}).filter(pl.col(counter.suffix) > 0)
        else:
            rows = rows.with_columns((pl.col(TIME) // one.feature.pane_ms).alias(PANE))
        return rows.select(*self.keys.dtypes, *self.backfill_types(name))

    def add_backfill(self, name: str, rows: pl.DataFrame) -> None:
        """Add older events to a feature, as ``backfill_rows`` of another process returned them."""
        one = self.features[name]
        if one.feature.function not in _WITHOUT_PANES:
            own, panes = one.aggregation, self.panes[one.feature.pane_ms]
            values = {own.column(p): rows[p.suffix].to_numpy() for p in own.partials}
            added = PaneRows(self.keys.assign(rows), rows[PANE].to_numpy(), values)
            panes.add(added, panes.arrive(added))
        elif name in self.latest:
            rows = rows.unique([*self.keys.dtypes], keep="last", maintain_order=True)
            table = self.latest[name]
            values_of = rows[VALUE].to_list() if table.dtype is not None else None
            table.merge(self.keys.assign(rows), rows[TIME].to_numpy(), values_of)
        elif name in self.first:
            self.first[name].merge(rows.unique([*self.keys.dtypes, PANE], keep="first", maintain_order=True))
        else:
            self.values[name].merge(rows.unique([*self.keys.dtypes, VALUE], keep="last", maintain_order=True))

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables: the panes by their length in ms, the others by the name of the feature."""
        return {**{str(ms): table for ms, table in self.panes.items()}, **dict(self._event_tables())}

    def state_size(self) -> StateSize:
        """Return the size of all tables, or more."""
        sizes = [table.state_size for table in self.panes.values()]
        return sum((table.state_size() for _, table in self._event_tables()), sum(sizes, StateSize()))

    def exact_sizes(self) -> Mapping[str, StateSize]:
        """Return the size of each table, by its name in ``tables``."""
        found = {}
        for ms, table in self.panes.items():
            every = np.ones(len(table.runs.codes()), bool)
            found[str(ms)] = table.state_sizes({"": every})[""]
        return found | {name: table.exact_size() for name, table in self._event_tables()}

    def table_name(self, name: str) -> str:
        """Return the name of the table in which a feature is."""
        one = self.features[name].feature
        return name if one.function in _WITHOUT_PANES else str(one.pane_ms)


def _arrays(frame: pl.DataFrame) -> dict[str, Array]:
    return {column.name: column.to_numpy() for column in frame.get_columns()}


def _is_within(latest: Ints, times: Ints, feature: CompiledFeature) -> Mask:
    """Return whether each latest event is in the panes that the feature reads at an event of these times."""
    within: Mask = latest // feature.pane_ms > times // feature.pane_ms - feature.panes
    return within
