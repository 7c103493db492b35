"""Two versions' alerts are the same by their event, or by key and window; the plots show every one of them once."""

from __future__ import annotations

import random

from headgate.web.pages import plots
from headgate.web.state.comparison import MOST_BUCKETS, VersionAlert, compare_alerts

HOUR = 3_600_000


def event_alert(offset: int, time_ms: int, user: str = "u1") -> VersionAlert:
    source = {"topic": "shop", "partition": 0, "offset": offset}
    body = {"kind": "event", "source": source, "key": {"user_id": user}, "event_time_ms": time_ms, "message": "m"}
    return VersionAlert.of(body, fixed=True)  # type: ignore[arg-type]


def window_alert(start: int, end: int, *, fixed: bool) -> VersionAlert:
    body = {"kind": "window", "key": {"u": 1}, "window": {"start_ms": start, "end_ms": end}, "event_time_ms": end}
    return VersionAlert.of(body, fixed=fixed)  # type: ignore[arg-type]


def test_alerts_about_one_event_are_the_same_whatever_else_differs() -> None:
    found = compare_alerts([event_alert(1, 5), event_alert(2, 6)], [event_alert(2, 6, "u2"), event_alert(3, 7)])
    assert (found.both, found.only_new, found.only_live) == (1, 1, 1)
    (only,) = found.new_alerts
    assert only.event == "shop:0:1"


def test_a_window_that_ends_when_it_fires_is_known_by_its_start() -> None:
    for fixed, both in ((True, 0), (False, 1)):
        found = compare_alerts([window_alert(0, 10, fixed=fixed)], [window_alert(0, 12, fixed=fixed)])
        assert found.both == both


def test_every_alert_is_in_one_piece_of_time_and_one_bar() -> None:
    drawn = random.Random(7)
    for span in (1_000, HOUR, 24 * HOUR, 40 * 24 * HOUR, 900 * 24 * HOUR):
        new = [event_alert(n, drawn.randrange(span)) for n in range(300)]
        live = [event_alert(n, new[n].time_ms) for n in range(100, 300)]
        live += [event_alert(1000 + n, drawn.randrange(span)) for n in range(50)]
        found = compare_alerts(new, live)
        assert (found.both, found.only_new, found.only_live) == (200, 100, 50)
        for name, total in (("both", 200), ("only_new", 100), ("only_live", 50)):
            assert sum(getattr(one, name) for one in found.buckets) == total
        starts = [one.start_ms for one in found.buckets]
        assert starts == [starts[0] + n * found.bucket_ms for n in range(len(starts))], "no gaps"
        assert len(starts) <= max(MOST_BUCKETS, span // found.bucket_ms + 2)
        plot = plots.comparison_plot(found)
        assert all(0 <= bar.x <= plots.WIDTH and bar.y >= -0.02 for bar in plot.bars)
        assert max(bar.height for bar in plot.bars) <= plots.HEIGHT


def test_nothing_to_compare_is_no_plot() -> None:
    found = compare_alerts([], [])
    assert (found.both, found.buckets, plots.comparison_plot(found).bars) == (0, (), [])


def test_bars_of_a_window_are_as_high_as_what_it_adds_up() -> None:
    events = [{"event_time_ms": n * 10, "values": {"amount": str(n)}} for n in range(1, 5)]
    window = {"start_ms": 0, "end_ms": 100, "values": {"sum(amount)": "10"}}
    plot = plots.window_plot({"windows": [window], "events": [*events]})  # type: ignore[list-item]
    assert plot is not None
    assert [bar.height for bar in plot.bars] == [30, 60, 90, 120]
    assert plot.top == "amount 4"
    assert plots.window_plot({"windows": [], "events": events}) is None  # type: ignore[dict-item]
    assert plots.window_plot(None) is None
