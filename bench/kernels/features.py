"""Measures feature rules in the rules kernel, without Spark, Kafka and JSON: 100 features of four entities.

Events arrive over three days, 5 % of them out of order by up to a minute. The kernel processes cuts of 100,000 events
and commits its state to memory after each. Together the rules fire at about one event in a hundred, however many they
are: each compares a feature, or the amount with a feature, with a threshold of its own. The alerts of some keys are
compared with those that a loop over each key's events finds.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.features [--rules 100,1000] [--events N] [--profile]

``--profile`` writes ``build/features-N.profile``, of N rules.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from bench.harness.result import Result, show
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.explain.features import with_feature_values
from rulecore.factory import RulesFactory
from rulecore.groups.features.group import FeatureGroup
from rulecore.kernel import RulesKernel
from rulecore.streams import RuleStream
from streamcore.kernel import ControlRecord, Cut, StreamKey
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.lanes import ALERTS, STATUS

EVENTS, CUT = 1_000_000, 100_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
START_MS, SPAN_MS = 20_000 * DAY, 3 * DAY
DISORDER_MS, DISORDERED = MINUTE, 0.05
SHARE = 0.01
CHECKED_KEYS = 100
#: How many of each there are, for each million events.
ENTITIES: Final = {"user_id": 50_000, "card": 80_000, "device": 60_000, "ip": 40_000}
SCHEMA = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [[name] for name in ENTITIES],
        "fields": {
            "ts": "timestamp not null",
            **dict.fromkeys(ENTITIES, "string"),
            "type": "string not null",
            "country": "string not null",
            "amount": "decimal(12,2) not null",
        },
    }
)
_TYPES, _COUNTRIES = ("payment", "login", "view"), ("DE", "FR", "BR", "NG", "US")
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Event:
    """An event of a key: its time, its place in the order of arrival, and what features read."""

    ms: int
    offset: int
    type: str
    country: str
    cents: int


@dataclass(frozen=True)
class Spec:
    """A feature: its text, how the loop computes it from the events that count, its condition and its window."""

    of: str
    compute: Callable[[Sequence[Event], Event], float | bool | str | None]
    type: str | None
    pane_ms: int
    panes: int

    def value(self, earlier: Sequence[Event], event: Event) -> float | bool | str | None:
        """Return the value at an event. ``earlier``: those of its key that arrived before."""
        first = (event.ms // self.pane_ms - self.panes + 1) * self.pane_ms
        counted = [one for one in earlier if one.ms >= first and (self.type is None or one.type == self.type)]
        return self.compute(counted, event)

    def document(self, name: str) -> dict[str, object]:
        where = {} if self.type is None else {"where": f"type = '{self.type}'"}
        span = {"sliding": f"{self.pane_ms * self.panes // MINUTE}m", "every": f"{self.pane_ms // MINUTE}m"}
        return {"name": name, "of": self.of, "within": span, **where}


def _mean(events: Sequence[Event]) -> float | None:
    return sum(one.cents for one in events) / len(events) / 100 if events else None


def _deviation(events: Sequence[Event]) -> float | None:
    return statistics.stdev(one.cents / 100 for one in events) if len(events) > 1 else None


def _latest(events: Sequence[Event]) -> Event | None:
    return max(events, key=lambda one: (one.ms, one.offset), default=None)


def _since_last(events: Sequence[Event], event: Event) -> float | None:
    found = _latest(events)
    return None if found is None else event.ms - found.ms


def _last_country(events: Sequence[Event]) -> str | None:
    found = _latest(events)
    return None if found is None else found.country


def _decayed(events: Sequence[Event], event: Event) -> float | None:
    weights = (one.cents / 100 * 0.5 ** ((event.ms - one.ms) / HOUR) for one in events)
    return math.fsum(weights) if events else None


_FUNCTIONS: Final[Mapping[str, Callable[[Sequence[Event], Event], float | bool | str | None]]] = {
    "count(*)": lambda events, _: len(events),
    "sum(amount)": lambda events, _: sum(one.cents for one in events) / 100 if events else None,
    "avg(amount)": lambda events, _: _mean(events),
    "max(amount)": lambda events, _: max((one.cents / 100 for one in events), default=None),
    "stddev(amount)": lambda events, _: _deviation(events),
    "count(distinct country)": lambda events, _: len({one.country for one in events}),
    "time_decayed_sum(amount, interval 1 hour)": _decayed,
}
_WINDOWS: Final = ((5 * MINUTE, 12), (HOUR, 24), (DAY, 30))
_KNOWN: Final[Sequence[Spec]] = (
    Spec("seen(country)", lambda events, e: e.country in {one.country for one in events}, None, DAY, 30),
    Spec("last(country)", lambda events, _: _last_country(events), None, DAY, 30),
    Spec("time_since_last()", _since_last, None, DAY, 30),
    Spec("first(amount)", lambda ev, _: min(ev, key=lambda e: e.ms).cents / 100 if ev else None, None, HOUR, 24),
)


def features() -> Mapping[str, Spec]:
    """Return the 25 features of each entity: seven functions over three windows, and four that look for one event."""
    specs = [
        Spec(of, compute, _TYPES[n % 3] if n % 2 else None, *window)
        for n, (of, compute) in enumerate(_FUNCTIONS.items())
        for window in _WINDOWS
    ]
    return {f"f{n}": spec for n, spec in enumerate([*specs, *_KNOWN])}


@dataclass(frozen=True)
class Condition:
    """A condition of a rule, as text and as a function of an event and the values of features."""

    features: tuple[str, ...]
    text: str
    holds: Callable[[Event, Mapping[str, float | bool | str | None]], bool]


def conditions(values: pl.DataFrame, count: int) -> list[Condition]:
    """Return conditions of one entity that together hold at about ``SHARE`` of the events of ``values``.

    A third compares a feature with a threshold, a third the amount with a multiple of it, a third are large payments
    from a country that was not seen, or not the last one.
    """
    numbers = [name for name, spec in features().items() if values[name].dtype.is_numeric()]
    share, found = SHARE / count / len(ENTITIES), []
    for number in range(count):
        name, kind = numbers[number % len(numbers)], number % 3
        own = share * (0.5 + (number % 7) / 7)
        if kind == 0:
            bound = round(_quantile(values[name].cast(pl.Float64), own), 2)
            found.append(Condition((name,), f"{name} > {bound:.2f}", _above(name, bound)))
        elif kind == 1 and features()[name].of.startswith(("avg", "max", "first")):
            factor = round(_quantile(values["amount"] / 100 / values[name].cast(pl.Float64), own), 2)
            found.append(Condition((name,), f"amount > {factor:.2f} * {name}", _times(name, factor)))
        else:
            known, text, holds = ("f21", "not f21", _not_seen) if number % 2 else ("f22", "country <> f22", _other)
            amounts = values.filter(pl.col("type") == "payment")["amount"] / 100
            bound = round(_quantile(amounts, min(1.0, own * 6)), 2)
            text = f"type = 'payment' and amount > {bound:.2f} and {text}"
            found.append(Condition((known,), text, _large(bound, holds)))
    return found


def _quantile(values: pl.Series, share: float) -> float:
    """Return the value that this share of the values is above."""
    found = values.fill_nan(None).drop_nulls().quantile(1 - share * len(values) / max(1, values.count()))
    assert found is not None
    return found


def _above(name: str, bound: float) -> Callable[[Event, Mapping[str, float | bool | str | None]], bool]:
    return lambda _, values: (value := values[name]) is not None and float(value) > bound


def _times(name: str, factor: float) -> Callable[[Event, Mapping[str, float | bool | str | None]], bool]:
    return lambda event, values: (value := values[name]) is not None and event.cents / 100 > factor * float(value)


def _not_seen(_: Event, values: Mapping[str, float | bool | str | None]) -> bool:
    return values["f21"] is False


def _other(event: Event, values: Mapping[str, float | bool | str | None]) -> bool:
    return values["f22"] is not None and event.country != values["f22"]


def _large(
    bound: float, holds: Callable[[Event, Mapping[str, float | bool | str | None]], bool]
) -> Callable[[Event, Mapping[str, float | bool | str | None]], bool]:
    return lambda event, values: event.type == "payment" and event.cents / 100 > bound and holds(event, values)


# --- events and rules -------------------------------------------------------------------------------------------------


def generate(count: int, seed: int = 1) -> pl.DataFrame:
    """Return events in order of arrival; keys are drawn so that some have many."""
    random = np.random.default_rng(seed)
    columns: dict[str, pl.Series] = {}
    for name, keys in ENTITIES.items():
        most = max(10, keys * count // EVENTS)
        names = pl.Series(name, [f"{name}-{n:07d}" for n in range(most)])
        columns[name] = names.gather((most * random.random(count) ** 1.5).astype(np.int64))
    steady = START_MS + np.linspace(0, SPAN_MS, count).astype(np.int64)
    behind = np.where(random.random(count) < DISORDERED, random.integers(0, DISORDER_MS, count), 0)
    times = np.maximum(steady - behind, START_MS)
    return pl.DataFrame(
        {
            "ts": times,
            **columns,
            "type": pl.Series(_TYPES).gather(random.choice(3, count, p=[0.5, 0.2, 0.3])),
            "country": pl.Series(_COUNTRIES).gather(random.choice(5, count, p=[0.6, 0.2, 0.1, 0.06, 0.04])),
            "amount": np.exp(random.normal(8, 1.2, count)).astype(np.int64),
            PARTITION: pl.Series(np.zeros(count), dtype=pl.Int32),
            OFFSET: np.arange(count),
            EVENT_MS: times,
        }
    )


def document(name: str, entity: str, needed: Sequence[str], where: str) -> dict[str, object]:
    """Return a rule over features of an entity."""
    return {
        "id": name,
        "version": 1,
        "owner": "bench",
        "on": "shop",
        "group_by": [entity],
        "features": [features()[one].document(one) for one in needed],
        "where": where,
        "then": {"severity": "low", "message": f"{{{entity}}}"},
    }


def feature_values(entity: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return events with the value of every feature of the entity, by which thresholds are chosen."""
    rule = Rule.model_validate(document("all", entity, [*features()], "f0 >= 0"))
    found = with_feature_values(compile_rule(rule, {"shop": SCHEMA}, RuleLimits()), SCHEMA, frame, {})
    cents = [name for name, spec in features().items() if spec.of in ("sum(amount)", "max(amount)", "first(amount)")]
    return found.with_columns(pl.col(cents) / 100)


def generate_rules(frame: pl.DataFrame, count: int) -> Mapping[str, tuple[str, Condition]]:
    """Return ``count`` rules by name: the entity and the condition, whose threshold is from some keys of the entity."""
    found: dict[str, tuple[str, Condition]] = {}
    for entity in ENTITIES:
        keys = frame[entity].unique().sort()
        values = feature_values(
            entity, frame.filter(pl.col(entity).is_in(keys[:: max(1, frame.height // 100_000)].implode()))
        )
        for number, condition in enumerate(conditions(values, count // len(ENTITIES))):
            found[f"{entity.replace('_', '-')}-{number}"] = (entity, condition)
    return found


def control(rules: Mapping[str, tuple[str, Condition]]) -> list[ControlRecord]:
    """Return the control records of the rules, and of four paused ones that need all features of an entity."""
    documents = {
        name: document(name, entity, condition.features, condition.text) for name, (entity, condition) in rules.items()
    }
    for entity in ENTITIES:
        name = f"all-{entity.replace('_', '-')}"
        documents[name] = document(name, entity, [*features()], "f0 < 0") | {"mode": "paused"}
    items = enumerate(documents.items())
    return [ControlRecord(0, n, name.encode(), orjson.dumps(own)) for n, (name, own) in items]


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass
class Costs:
    """The costs and the output of a run. ``alerts``: rule and offset of the event of each alert."""

    step_s: float = 0.0
    commit_s: float = 0.0
    steady_s: float = 0.0
    steady_events: int = 0
    state_bytes: int = 0
    entries: int = 0
    alerts: set[tuple[str, int]] = field(default_factory=set)


def run(frame: pl.DataFrame, records: Sequence[ControlRecord]) -> Costs:
    """Run the kernel over all events in cuts. The steady part begins after half of the events."""
    kernel = RulesFactory((RuleStream(SCHEMA, "shop"),))()
    assert isinstance(kernel, RulesKernel)
    log, blobs, costs = StateLog(StateSettings()), MemoryBlobs(), Costs()
    before = latest = NO_WATERMARK
    for start in range(0, frame.height, CUT):
        cut = frame[start : start + CUT]
        latest = max(latest, int(cut[EVENT_MS].to_numpy().max()))
        after = latest - DISORDER_MS
        frames = {StreamKey("shop", route): cut for route in range(len(ENTITIES))}
        began = time.process_time()
        output = kernel.step(Cut(0, frames, records if not start else (), after, before, after, {}))
        middle = time.process_time()
        log.commit(blobs, kernel.tables(), {})
        done = time.process_time()
        costs.step_s += middle - began
        costs.commit_s += done - middle
        if start >= frame.height // 2:
            costs.steady_s += done - began
            costs.steady_events += cut.height
        before = after
        for record in output.records:
            if record.lane == ALERTS:
                alert = orjson.loads(record.value or b"")
                costs.alerts.add((alert["rule"], alert["source"]["offset"]))
            elif record.lane == STATUS:
                status = orjson.loads(record.value or b"")
                assert status["status"] == "accepted", status
    for group in kernel.groups.values():
        assert isinstance(group, FeatureGroup)
        use = group.state_use(before).total
        costs.state_bytes, costs.entries = costs.state_bytes + use.bytes, costs.entries + use.entries
    return costs


def expected_alerts(
    frame: pl.DataFrame, rules: Mapping[str, tuple[str, Condition]], entity: str, keys: Sequence[str]
) -> set[tuple[str, int]]:
    """Return rule and offset of the alerts of some keys of an entity, from a loop over the events of each."""
    own = [(name, one) for name, (of, one) in rules.items() if of == entity]
    specs = features()
    found = set()
    for key in keys:
        rows = frame.filter(pl.col(entity) == key).select(EVENT_MS, OFFSET, "type", "country", "amount").rows()
        events = [Event(*row) for row in rows]
        for place, event in enumerate(events):
            values = {name: spec.value(events[:place], event) for name, spec in specs.items()}
            found |= {(name, event.offset) for name, condition in own if condition.holds(event, values)}
    return found


def check(frame: pl.DataFrame, rules: Mapping[str, tuple[str, Condition]], costs: Costs) -> int:
    """Compare the alerts of some keys of each entity; return their number. Raise ``SystemExit`` if they differ."""
    compared = 0
    for entity in ENTITIES:
        busy = frame.group_by(entity).len().sort("len", entity, descending=True)[entity]
        keys = [*busy[:3].to_list(), *busy[3 :: max(1, len(busy) // CHECKED_KEYS)].to_list()]
        offsets = set(frame.filter(pl.col(entity).is_in(keys))[OFFSET].to_list())
        right = expected_alerts(frame, rules, entity, keys)
        got = {(name, o) for name, o in costs.alerts if rules[name][0] == entity and o in offsets}
        if got != right:
            raise SystemExit(
                f"{entity}: {len(got - right)} alerts too many, {len(right - got)} missing: {[*(got ^ right)][:5]}"
            )
        compared += len(right)
    return compared


def measure(count: int, events: int, *, profile: bool = False) -> Result:
    """Return the figures of ``count`` rules. A short run before leaves imports and compilation out."""
    frame = generate(events)
    rules = generate_rules(frame, count)
    records = control(rules)
    run(frame[: 2 * CUT], records)
    profiler = cProfile.Profile(time.process_time)
    costs = profiler.runcall(run, frame, records) if profile else run(frame, records)
    if profile:
        Path("build").mkdir(exist_ok=True)
        profiler.dump_stats(f"build/features-{count}.profile")
    compared = check(frame, rules, costs)
    return {
        "bench": "features in process",
        "features": len(ENTITIES) * len(features()),
        "entities": len(ENTITIES),
        "rules": count,
        "events": events,
        "alerts": len(costs.alerts),
        "alerts_compared": compared,
        "equals_oracle": True,
        "cpu_seconds_per_million": round((costs.step_s + costs.commit_s) / events * 1e6, 2),
        "cpu_seconds_per_million_steady": round(costs.steady_s / max(1, costs.steady_events) * 1e6, 2),
        "step_cpu_s": round(costs.step_s, 2),
        "commit_cpu_s": round(costs.commit_s, 2),
        "state_entries": costs.entries,
        "state_bytes": costs.state_bytes,
        "state_bytes_per_entry": round(costs.state_bytes / max(1, costs.entries), 1),
    }


def measure_all(counts: Sequence[int], events: int, *, profile: bool = False) -> list[Result]:
    """Measure each number of rules; the last result has the ratio to the first."""
    results = [measure(count, events, profile=profile) for count in counts]
    first, last = results[0]["cpu_seconds_per_million"], results[-1]["cpu_seconds_per_million"]
    assert isinstance(first, float)
    assert isinstance(last, float)
    if len(results) > 1:
        results[-1]["ratio_to_fewest_rules"] = round(last / first, 2)
    return results


def main() -> None:
    """Measure what the command line names, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rules", default="100,1000")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for result in measure_all([int(n) for n in options.rules.split(",")], options.events, profile=options.profile):
        show(result)


if __name__ == "__main__":
    main()
