"""Generates rules as rows of numbers, from which both the published rules and the oracle's tables are derived.

All rules together match the same share of the events (``HITS``), however many rules there are. Otherwise a benchmark
with more rules would measure the cost of more alerts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from bench.harness.events import COUNTRIES, CURRENCIES, MAX_CENTS, MAX_RISK, MERCHANTS, STATUSES, STREAM, TYPES
from rulecore.documents.rule import Rule, canonical_json

HITS = 0.01
WINDOW, SLIDE = "1h", "5m"
PANE_MS, PANES = 300_000, 12


class Family(NamedTuple):
    """A form of rule, and its share of all rules."""

    name: str
    share: float


FAMILIES = (
    Family("place", 0.4),  # type, country, an amount above a bound
    Family("watched", 0.2),  # one user, an amount from a bound on
    Family("shop", 0.2),  # one merchant, declined, an amount between two bounds
    Family("foreign", 0.1),  # two types, not in euro, a risk above a bound
    Family("trouble", 0.1),  # a country, not ok, a risk from a bound on
)


@dataclass(frozen=True, slots=True)
class EventRules:
    """Generated event rules. ``table``: a row per rule, with ``rule``, ``family`` and the numbers of its condition."""

    table: pl.DataFrame

    def control_records(self) -> Iterable[tuple[str, bytes]]:
        """Return rule ids and control records."""
        for row in self.table.iter_rows(named=True):
            rule_id = event_rule_id(row["rule"])
            yield rule_id, record(rule_id, where=_condition(row))


def event_rule_id(number: int) -> str:
    """Return the id of the rule of that number."""
    return f"event-{number:05d}"


def event_rules(count: int, users: int, seed: int = 7) -> EventRules:
    """Return ``count`` rules of all families, mixed."""
    draw = np.random.default_rng(seed)
    family = draw.choice(len(FAMILIES), count, p=[f.share for f in FAMILIES])
    kinds = draw.integers(0, len(TYPES), count)
    table = pl.DataFrame(
        {
            "rule": np.arange(count, dtype=np.int64),
            "family": family.astype(np.int8),
            "type": kinds,
            "type2": (kinds + draw.integers(1, len(TYPES), count)) % len(TYPES),
            "country": draw.integers(0, len(COUNTRIES), count),
            "user": draw.integers(0, users, count),
            "merchant": draw.integers(0, MERCHANTS, count),
        }
    )
    left = 1 / np.array([len(TYPES) * len(COUNTRIES), users, MERCHANTS * 10, 5 * 4 / 3, len(COUNTRIES) * 10 / 3])
    wanted = np.minimum(HITS / count / left[family] * draw.uniform(0.5, 1.5, count), 0.9)
    bound = table.with_columns(
        low=pl.Series((MAX_CENTS * (1 - wanted)).astype(np.int64)),
        high=pl.Series(np.full(count, MAX_CENTS, np.int64)),
        risk=pl.Series((MAX_RISK * (1 - wanted)).astype(np.int64)),
    )
    return EventRules(bound)


def _condition(row: Mapping[str, int]) -> str:
    low, high, risk = f"{row['low'] / 100:.2f}", f"{row['high'] / 100:.2f}", f"{row['risk'] / MAX_RISK:.6f}"
    country, kind = COUNTRIES[row["country"]], TYPES[row["type"]]
    match FAMILIES[row["family"]].name:
        case "place":
            return f"type = '{kind}' and country = '{country}' and amount > {low}"
        case "watched":
            return f"user_id = 'u{row['user']:07d}' and amount >= {low}"
        case "shop":
            declined = STATUSES[7]
            return f"merchant = 'm{row['merchant']:05d}' and status = '{declined}' and amount between {low} and {high}"
        case "foreign":
            return f"type in ('{kind}', '{TYPES[row['type2']]}') and currency <> '{CURRENCIES[0]}' and risk > {risk}"
    return f"country = '{country}' and status <> '{STATUSES[0]}' and risk >= {risk}"


class WindowAggregate(NamedTuple):
    """An aggregate of a rule, and the SQL of the oracle that computes it. Its value never falls within a window.

    ``column``: the name of the oracle's column. ``pane``: the SQL aggregate over the events of a pane. ``over``: the
    SQL aggregate that merges the panes of a window. ``where``: the condition of the rule; ``filter``: the same
    condition in SQL over the columns of numbers; both are None for all events.
    """

    aggregate: str
    column: str
    pane: str
    over: str
    where: str | None
    filter: str | None

    @property
    def own(self) -> str:
        """Return the oracle's column with the number of the rule's events in the last pane."""
        return f"own_{self.where or 'all'}"


_FUNCTIONS = (
    ("count(*)", "n", "count(*)", "sum"),
    ("sum(amount)", "amount", "sum(amount)", "sum"),
    ("max(amount)", "largest", "max(amount)", "max"),
    ("sum(quantity)", "quantity", "sum(quantity)", "sum"),
)
_FILTERS = (
    ("", None, None),
    ("declined-", "status = 'declined'", "status = 7"),
    ("payment-", "type = 'payment'", "type = 5"),
    ("euro-", "currency = 'EUR'", "currency = 0"),
    ("card-", "type in ('payment', 'refund')", "type in (5, 6)"),
)
#: Four functions over five filters.
TWENTY = tuple(
    WindowAggregate(aggregate, f"{name}{column}", pane, over, where, own)
    for name, where, own in _FILTERS
    for aggregate, column, pane, over in _FUNCTIONS
)
#: All functions over all events, and one function over the events of one filter.
FIVE = TWENTY[:5]


class WindowRule(NamedTuple):
    """A rule with ``having`` ``aggregate >= bound``. The bound is in whole units of the column (cents for amounts)."""

    rule: str
    aggregate: WindowAggregate
    bound: int


def window_rules(bounds: Mapping[WindowAggregate, list[int]]) -> list[WindowRule]:
    """Return one rule per bound."""
    return [
        WindowRule(f"window-{one.column}-{number:03d}", one, bound)
        for one, several in bounds.items()
        for number, bound in enumerate(several)
    ]


def window_control_records(rules: Iterable[WindowRule]) -> Iterable[tuple[str, bytes]]:
    """Return rule ids and control records."""
    for rule in rules:
        money = rule.aggregate.aggregate.endswith("(amount)")
        bound = f"{rule.bound / 100:.2f}" if money else str(rule.bound)
        within = {"sliding": WINDOW, "every": SLIDE}
        having = f"{rule.aggregate.aggregate} >= {bound}"
        yield (
            rule.rule,
            record(rule.rule, where=rule.aggregate.where, group_by=["user_id"], within=within, having=having),
        )


def record(rule_id: str, *, version: int = 1, **conditions: object) -> bytes:
    """Return a rule's control record."""
    document = {
        "id": rule_id,
        "version": version,
        "owner": "bench",
        "on": STREAM,
        "then": {"severity": "high", "message": f"{rule_id} for {{user_id}}"},
        **{name: value for name, value in conditions.items() if value is not None},
    }
    return canonical_json(Rule.model_validate(document))
