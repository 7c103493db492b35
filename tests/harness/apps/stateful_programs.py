"""A program for each kind of stateful operator, over the orders and views of ``versioned_shop``.

For the tests that change how an app's state is divided, stored or restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import polars as pl

import streamcore as sc
from streamcore.operators.base import MAIN
from streamcore.operators.deduplication.operator import WhenFull
from streamcore.operators.rolling.totals import RollingSpan
from tests.harness.apps.versioned_shop import ORDERS, VIEWS


class Visits(sc.ProcessFunction):
    """Totals by user and number, a timer after each order, and users whom a control record silences."""

    outputs = {MAIN: {"text": pl.String}}  # noqa: RUF012
    total = sc.ValueState(int, default=0)
    seen = sc.MapState(int, int)
    recent = sc.ListState(int, most=3)

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.total += event.n
        self.seen[event.n] = self.seen.get(event.n, 0) + 1
        self.recent.append(event.n)
        context.timers.set(context.event_ms + 2_500)
        if event.user not in context.broadcast:
            yield {"text": f"{event.user} {self.total} {self.seen[event.n]} {list(self.recent)}"}

    def on_timer(self, time_ms: int, context: sc.ProcessContext) -> Iterable[object]:
        yield {"text": f"timer {context.key} {time_ms} {self.total}"}

    def process_control(self, record: Any, context: sc.ProcessContext) -> None:
        context.broadcast[record.key] = 1


def orders() -> sc.Stream:
    """Return the stream of orders."""
    return sc.source(ORDERS, sc.bounded_out_of_orderness(2_000))


def by_user() -> sc.KeyedStream:
    """Return the orders by user."""
    return orders().key_by("user")


def _joined() -> sc.JoinedStream:
    views = sc.source(VIEWS, sc.bounded_out_of_orderness(2_000))
    return by_user().join(views.select(pl.col("user").alias("viewer"), "page").key_by("viewer"))


PROGRAMS: Mapping[str, Callable[[], sc.Stream]] = {
    "sliced windows": lambda: by_user().window(sc.Sliding(6_000, 2_000)).aggregate("w", n=sc.Sum("n")),
    "sessions": lambda: by_user().window(sc.Session("900ms")).aggregate("s", n=sc.Count()),
    "early windows": lambda: (
        by_user().window(sc.Tumbling(9_000)).trigger(sc.Repeatedly(sc.AfterCount(2))).aggregate("e", n=sc.Max("n"))
    ),
    "windows with their elements": lambda: (
        by_user()
        .window(sc.Tumbling(9_000))
        .evict(sc.KeepCount(3))
        .apply(lambda view: [{"numbers": str(view.elements["n"].to_list())}], {"numbers": pl.String()})
    ),
    "count windows": lambda: by_user().window(sc.CountTumbling(4)).aggregate("c", n=sc.Sum("n")),
    "revised windows": lambda: (
        by_user().window(sc.Session("900ms")).revise(sc.RevisionPolicy(early_ms="500ms"), "r", n=sc.Count())
    ),
    "rolling totals": lambda: by_user().rolling(RollingSpan("5s", 5_000, 1_000), n=sc.Sum("n")),
    "duplicates": lambda: (
        orders().key_by("user", "n").deduplicate(60_000, max_ids=60, when_full=WhenFull.FORGET_OLDEST)
    ),
    "a keyed function": lambda: by_user().connect(sc.control_stream()).process(Visits(), name="visits"),
    "an interval join": lambda: _joined().full_outer().within(-2_000, 1_000),
    "a window join": lambda: _joined().left_outer().window(sc.Tumbling(4_000)).pairs(),
    "a temporal join": lambda: _joined().as_of_event_time(),
    "a lookup join": lambda: _joined().as_of_arrival(),
    "two changing tables": lambda: _joined().latest(),
}
