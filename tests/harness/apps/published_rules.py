"""The rules that most tests publish: per event and windowed, early and final, tumbling and sliding."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from tests.harness.apps.orders import Order
from tests.harness.oracles.rule_alerts import Figures, RuleUnderTest, total

MINUTE_MS = 60_000


def document(
    rule_id: str, message: str = "{user}", *, on: str = "orders", version: int = 1, **more: object
) -> dict[str, object]:
    """Return a rule's document with what every rule has."""
    then = {"severity": "high", "message": message}
    return {"id": rule_id, "version": version, "owner": "tests", "on": on, "then": then, **more}


def large_order(limit: int = 900, *, version: int = 1, prefix: str = "") -> RuleUnderTest:
    """Return a rule per event: an amount above a limit."""
    return RuleUnderTest(
        document(
            f"{prefix}large-order",
            "{kind} of {amount} by {user}",
            version=version,
            where=f"kind = 'pay' and amount > {limit}",
        ),
        where=lambda o: o.kind == "pay" and o.amount is not None and o.amount > limit,
    )


def _unknown_country(prefix: str) -> RuleUnderTest:
    return RuleUnderTest(
        document(
            f"{prefix}unknown-country",
            "{kind} of {amount} by {user}",
            where="kind = 'pay' and country is null and (amount < 10 or amount is null)",
        ),
        where=lambda o: o.kind == "pay" and o.country is None and (o.amount is None or o.amount < 10),
    )


def many_payments(count: int = 4, *, version: int = 1, prefix: str = "") -> RuleUnderTest:
    """Return an early rule with a tumbling window: a number of payments within a minute."""
    return RuleUnderTest(
        document(
            f"{prefix}many-payments",
            version=version,
            where="kind = 'pay'",
            group_by=["user"],
            within={"tumbling": "1m"},
            having=f"count(*) >= {count}",
        ),
        where=lambda o: o.kind == "pay",
        size_ms=MINUTE_MS,
        slide_ms=MINUTE_MS,
        figures=lambda inside: {"count(*)": len(inside)},
        having=lambda f: _number(f, "count(*)") >= count,
    )


def _much_spent(prefix: str) -> RuleUnderTest:
    return RuleUnderTest(
        document(
            f"{prefix}much-spent",
            where="kind = 'pay' and country <> 'XX'",
            group_by=["user"],
            within={"sliding": "5m", "every": "1m"},
            having="sum(amount) > 4000 and count(*) >= 3",
        ),
        where=lambda o: o.kind == "pay" and o.country is not None and o.country != "XX",
        size_ms=5 * MINUTE_MS,
        slide_ms=MINUTE_MS,
        figures=_sum_and_count,
        having=lambda f: (
            f["sum(amount)"] is not None and _number(f, "sum(amount)") > 4000 and _number(f, "count(*)") >= 3
        ),
    )


def _window_shopper(prefix: str) -> RuleUnderTest:
    return RuleUnderTest(
        document(
            f"{prefix}window-shopper",
            where="kind = 'view'",
            group_by=["user"],
            within={"tumbling": "2m"},
            having="count(*) >= 6",
            emit="final",
        ),
        where=lambda o: o.kind == "view",
        size_ms=2 * MINUTE_MS,
        slide_ms=2 * MINUTE_MS,
        figures=lambda inside: {"count(*)": len(inside)},
        having=lambda f: _number(f, "count(*)") >= 6,
    )


def _slow_spender(prefix: str) -> RuleUnderTest:
    return RuleUnderTest(
        document(
            f"{prefix}slow-spender",
            where="kind = 'pay'",
            group_by=["user"],
            within={"sliding": "4m", "every": "2m"},
            having="sum(amount) > 9000",
            emit="final",
        ),
        where=lambda o: o.kind == "pay",
        size_ms=4 * MINUTE_MS,
        slide_ms=2 * MINUTE_MS,
        figures=lambda inside: {"sum(amount)": total(o.amount for o in inside)},
        having=lambda f: _above(f, "sum(amount)", 9000),
    )


def all_kinds(prefix: str = "") -> list[RuleUnderTest]:
    """Return six rules."""
    return [
        large_order(prefix=prefix),
        _unknown_country(prefix),
        many_payments(prefix=prefix),
        _much_spent(prefix),
        _window_shopper(prefix),
        _slow_spender(prefix),
    ]


def _sum_and_count(inside: Sequence[Order]) -> Figures:
    return {"sum(amount)": total(o.amount for o in inside), "count(*)": len(inside)}


def _above(figures: Figures, name: str, limit: int) -> bool:
    """Return whether the value is above the limit; NULL is not."""
    return figures[name] is not None and _number(figures, name) > limit


def _number(figures: Figures, name: str) -> Decimal:
    value = figures[name]
    assert isinstance(value, int | Decimal)
    return Decimal(value)
