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
from streamcore.operators.windows.general.pane_values import WindowView
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


class Bonus(sc.ProcessFunction):
    """Totals by user, to all of which each control record adds a bonus."""

    outputs = {MAIN: {"text": pl.String}}  # noqa: RUF012
    total = sc.ValueState(int, default=0)
    bonuses = sc.ListState(int, most=4)

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.total += event.n
        yield {"text": f"{event.user} {self.total}"}

    def on_timer(self, time_ms: int, context: sc.ProcessContext) -> Iterable[object]:
        yield {"text": f"timer {context.key} {time_ms} {list(self.bonuses)}"}

    def process_control(self, record: Any, context: sc.ProcessContext) -> None:
        context.apply_to_keyed_state(self.add_bonus)

    def add_bonus(self, context: sc.ProcessContext) -> Iterable[object]:
        self.total += 100
        self.bonuses.append(self.total)
        context.timers.set(context.event_ms + 4_000)
        yield {"text": f"bonus {context.key} {self.total}"}


class Fading(sc.ProcessFunction):
    """Totals and numbers of a user that are forgotten after a while, by event time or by the clock."""

    outputs = {MAIN: {"text": pl.String}}  # noqa: RUF012
    total = sc.ValueState(int, default=0, ttl=sc.Ttl("4s"))
    seen = sc.MapState(int, int, ttl=sc.Ttl("900ms", sc.TimeDomain.CLOCK))
    recent = sc.ListState(int, most=3, ttl=sc.Ttl("6s"))

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.total += event.n
        self.seen[event.n] = self.seen.get(event.n, 0) + 1
        self.recent.append(event.n)
        if event.n % 3 == 0:
            context.timers.set(context.clock_ms + 700, sc.TimeDomain.CLOCK)
        yield {"text": f"{event.user} {self.total} {sorted(self.seen.items())} {list(self.recent)}"}

    def on_timer(self, time_ms: int, context: sc.ProcessContext) -> Iterable[object]:
        yield {"text": f"timer {context.key} {time_ms} {self.total}"}


class Pairs(sc.CoProcessFunction):
    """The orders and the page views of a user, counted together, and a timer after each view."""

    outputs = {MAIN: {"text": pl.String}}  # noqa: RUF012
    total = sc.ValueState(int, default=0)
    pages = sc.MapState(str, int)

    def process1(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.total += event.n
        yield {"text": f"{event.user} {self.total} {dict(self.pages)}"}

    def process2(self, event: Any, context: sc.ProcessContext) -> None:
        self.pages[event.page] = self.pages.get(event.page, 0) + 1
        context.timers.set(context.event_ms + 1_500)

    def on_timer(self, time_ms: int, context: sc.ProcessContext) -> Iterable[object]:
        yield {"text": f"timer {context.key} {time_ms} {self.total} {dict(self.pages)}"}


class Panes(sc.ProcessWindowFunction):
    """The panes of a key, numbered, with the largest number that an earlier pane had."""

    outputs = {MAIN: {"pane_number": pl.Int64, "largest": pl.Int64}}  # noqa: RUF012
    panes = sc.ValueState(int, default=0)
    largest = sc.ValueState(int, default=0)

    def process(self, window: WindowView, context: object) -> Iterable[object]:
        self.panes += 1
        self.largest = max(self.largest, *window.elements["n"].to_list())
        yield {"pane_number": self.panes, "largest": self.largest}


def orders() -> sc.Stream:
    """Return the stream of orders."""
    return sc.source(ORDERS, sc.bounded_out_of_orderness(2_000))


def by_user() -> sc.KeyedStream:
    """Return the orders by user."""
    return orders().key_by("user")


def _by_clock() -> sc.KeyedStream:
    return sc.source(ORDERS, time=sc.EventTime.PROCESSING).key_by("user")


def _views() -> sc.Stream:
    return sc.source(VIEWS, sc.bounded_out_of_orderness(2_000)).select(pl.col("user").alias("viewer"), "page")


def _joined() -> sc.JoinedStream:
    return by_user().join(_views().key_by("viewer"))


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

#: Programs with more kinds of functions, inputs and states.
FUNCTIONS: Mapping[str, Callable[[], sc.Stream]] = {
    "a function for all keys": lambda: by_user().connect(sc.control_stream()).process(Bonus(), name="bonus"),
    "state with a time to live": lambda: by_user().process(Fading(), name="fading"),
    "two connected streams": lambda: by_user().connect(_views().key_by("viewer")).process(Pairs(), name="pairs"),
    "sessions in processing time": lambda: _by_clock().window(sc.Session("600ms")).aggregate("s", n=sc.Sum("n")),
    "windows in processing time": lambda: _by_clock().window(sc.Tumbling("1s")).aggregate("w", n=sc.Sum("n")),
    "a pattern": lambda: (
        by_user()
        .pattern(sc.Pattern.begin("low").where(pl.col("n") < 5).followed_by("high").where(pl.col("n") > 9).within("6s"))
        .select(low=sc.matched("low").sum("n"), n=sc.matched("high").sum("n"))
    ),
    "windows with a function": lambda: by_user().window(sc.Tumbling(5_000)).process(Panes(), name="panes"),
}
