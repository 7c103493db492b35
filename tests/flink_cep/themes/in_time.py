"""Time and keys: `within`, time-outs, disorder, events of one time."""

from __future__ import annotations

from tests.flink_cep.case_builder import (
    ONE_OR_MORE,
    OPTIONAL,
    PAST_LAST,
    TO_NEXT,
    Cases,
    both,
    group,
    kind,
    loop,
    skip_to,
    step,
    v_than,
)


def within(cases: Cases) -> None:
    ab = [step("a"), step("b", "followed_by")]
    cases.add(
        "within", "b 1 ms before the end, at it, after it", ab, "a1=10 b1=19 a2=30 b2=40 a3=50 b3=61", within_ms=10
    )
    cases.add(
        "within",
        "the watermark is 1 ms before, at, and after the end",
        ab,
        "a1=10 n1=20 n2=21 n3=22 n4=23",
        within_ms=10,
    )
    cases.add(
        "within", "the same with another key's events alone", ab, "a1=10 n1/y=20 n2/y=21 n3/y=22 n4/y=23", within_ms=10
    )
    cases.add(
        "within", "no watermark before the end", ab, "a1=10 b1=19 a2=30 b2=40 a3=50", within_ms=10, disorder_ms=None
    )
    cases.add("within", "within of 1 ms: only events of one time", ab, "a1=10 b1=10 a2=20 b2=21", within_ms=1)
    abc = [step("a"), step("b", "followed_by"), step("c", "followed_by")]
    cases.add(
        "within", "partial matches of one and of two events", abc, "a1=10 b1=12 a2=14 c1=21 b2=22 n1=40", within_ms=10
    )
    cases.add(
        "within",
        "followed_by_any leaves what it branched from",
        [step("a"), step("b", "followed_by_any")],
        "a1=10 b1=12 b2=14 n1=40",
        within_ms=10,
    )
    cases.add(
        "within",
        "a loop's partial matches",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by")],
        "a1=10 a2=12 b1=13 a3=14 n1=40",
        within_ms=10,
    )
    cases.add(
        "within",
        "a loop at the end: complete, and yet it times out",
        [step("a"), step("b", "followed_by", times=ONE_OR_MORE)],
        "a1=10 b1=12 b2=14 b3=20 n1=40",
        within_ms=10,
    )
    cases.add(
        "within",
        "an optional step at the end",
        [step("a"), step("b", "followed_by", times=OPTIONAL)],
        "a1=10 n1=12 a2=30 b1=32 n2=60",
        within_ms=10,
    )
    cases.add(
        "within",
        "an optional step at the beginning",
        [step("a", times=OPTIONAL), step("b", "followed_by")],
        "a1=10 b1=25 n1=40",
        within_ms=10,
    )
    cases.add(
        "within",
        "strict contiguity leaves nothing to time out",
        [step("a"), step("b", "next")],
        "a1=10 n1=12 a2=14 n2=40",
        within_ms=10,
    )
    cases.add(
        "within",
        "strict contiguity, and time ends before the next event",
        [step("a"), step("b", "next")],
        "a1=10 b1=20 a2=30 n2=60",
        within_ms=10,
    )
    prev = [step("a"), step("b", "followed_by", within_previous_ms=5), step("c", "followed_by", within_previous_ms=5)]
    cases.add(
        "within-previous",
        "each event less than 5 ms after the one before",
        prev,
        "a1=10 b1=14 c1=18 a2=20 b2=24 c2=29 a3=30 b3=36 c3=37",
    )
    cases.add("within-previous", "what times out, and nothing comes after it", prev, "a1=10 b1=14")
    cases.add("within-previous", "what times out, and the next event of the key", prev, "a1=10 b1=14 n1=16 n2=30 n3=31")
    cases.add(
        "within-previous",
        "only between b and c",
        [step("a"), step("b", "followed_by"), step("c", "followed_by", within_previous_ms=5)],
        "a1=10 b1=30 c1=34 a2=40 b2=60 c2=65",
    )
    cases.add(
        "within-previous",
        "with a shorter time of the whole",
        prev,
        "a1=10 b1=14 c1=17 a2=20 b2=24 c2=28 n1=60",
        within_ms=8,
    )
    cases.add(
        "within-previous",
        "on a step that is a loop",
        [step("a"), step("b", "followed_by", times=ONE_OR_MORE, within_previous_ms=5), step("c", "followed_by")],
        "a1=10 b1=18 b2=27 c1=28 n1=60",
    )
    for name, many in {
        "times(2)": loop(2, 2, within_ms=5),
        "oneOrMore": loop(1, None, within_ms=5),
        "times(1, 3)": loop(1, 3, within_ms=5),
    }.items():
        pattern = [step("a"), step("b", "followed_by", times=many), step("c", "followed_by")]
        cases.add(
            "within-previous", f"{name} with a time between its events", pattern, "a1=10 b1=30 b2=34 b3=39 c1=50 n1=60"
        )
    cases.add(
        "within",
        "a group at the end, whose last event is too late",
        [step("a"), step("b", "followed_by"), group([step("c"), step("d", "followed_by")], "followed_by")],
        "a1=10 b1=12 c1=14 d1=19 n1=40",
        within_ms=9,
    )
    cases.add("within", "a partial match that begins at 0 ms", ab, "a1=0 n1=20 n2=30", within_ms=10)
    cases.add(
        "within",
        "a partial match that begins at 0 ms, and no later event of its key",
        ab,
        "a1=0 n1/y=20 n2/y=30",
        within_ms=10,
    )
    for skip in (TO_NEXT, PAST_LAST):
        cases.add(
            "within",
            f"timed-out partial matches, {skip['strategy']}",
            [step("a"), step("b", "followed_by_any"), step("c", "followed_by_any")],
            "a1=10 b1=12 a2=13 b2=14 c1=16 n1=40",
            within_ms=10,
            skip=skip,
        )
    quiet = "a1=0 n1/y=5 n2/y=20 n3/y=30"
    cases.add("within", "a partial match that begins at 0 ms, in steps of the watermark", ab, quiet, within_ms=10)
    cases.add("within", "the same, from 1 ms", ab, quiet.replace("=0", "=1", 1), within_ms=10)
    cases.add("within-previous", "the key has no other event", prev, "a1=10 b1=14 n1/y=15 n2/y=30 n3/y=40")
    for name, many in {
        "times(2)": loop(2, 2, within_ms=5),
        "times(3)": loop(3, 3, within_ms=5),
        "oneOrMore": loop(1, None, within_ms=5),
        "timesOrMore(2)": loop(2, None, within_ms=5),
        "times(1, 3)": loop(1, 3, within_ms=5),
    }.items():
        pattern = [step("a"), step("b", "followed_by", times=many), step("c", "followed_by")]
        cases.add(
            "within-previous",
            f"{name} with a time, the first b in time",
            pattern,
            "a1=10 b1=12 b2=16 b3=24 c1=26 n1=60",
        )
        cases.add(
            "within-previous",
            f"{name} with a time, the second b too late",
            pattern,
            "a1=10 b1=12 b2=20 b3=24 c1=40 n1=60",
        )


def time_order(cases: Cases) -> None:
    ab = [step("a"), step("b", "followed_by")]
    strict = [step("a"), step("b", "next"), step("c", "next")]
    cases.add(
        "order",
        "events out of order, within the disorder",
        strict,
        "c1=13 b1=12 a1=11 n1=14 a2=21 c2=23 b2=22",
        disorder_ms=5,
    )
    cases.add(
        "order", "events later than the disorder are left out", ab, "a1=10 n1=20 a2=14 a3=15 a4=16 b1=21", disorder_ms=5
    )
    cases.add("order", "an event at the watermark is late", ab, "a1=10 a2=12 a3=11 b1=13")
    cases.add("order", "an event at the highest time so far is not late", ab, "a1=10 a2=12 a3=12 b1=13")
    cases.add(
        "order", "one time: the order of arrival", [step("a"), step("b", "next")], "b1=10 a1=10 b2=10 a2=10 a3=11"
    )
    cases.add(
        "order",
        "one time, and arrival between others",
        [step("a"), step("b", "next")],
        "a1=10 n1=12 b1=10 n2=11",
        disorder_ms=5,
    )
    cases.add(
        "order",
        "one time, skip_past_last_event",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by")],
        "a1=10 a2=10 b1=10 a3=10 b2=10",
        skip=PAST_LAST,
    )
    cases.add(
        "order",
        "one time, skip_to_next",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by")],
        "a1=10 a2=10 b1=10 a3=10 b2=10",
        skip=TO_NEXT,
    )
    cases.add(
        "order",
        "one time, skip_to_last",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by")],
        "a1=10 a2=10 b1=10 a3=10 b2=10",
        skip=skip_to("last", "a"),
    )
    cases.add("order", "one time, with within", ab, "a1=10 a2=10 b1=19 a3=19 b2=20 n1=40", within_ms=10)
    cases.add(
        "keys",
        "three keys",
        [step("a"), step("b", "followed_by", times=ONE_OR_MORE)],
        "a1/x a1/y b1/x b1/z b1/y a1/z b2/x b2/z",
    )
    cases.add("keys", "strict contiguity is by key", strict, "a1/x a1/y b1/x n1/y c1/x b1/y c1/y")
    cases.add(
        "keys",
        "two keys, out of order, with within",
        ab,
        "b1/x=14 a1/x=12 a1/y=10 n1/y=21 b1/y=20 a2/x=22 b2/x=32 n2/y=60",
        within_ms=10,
        disorder_ms=5,
    )
    cases.add(
        "keys",
        "skips and conditions are by key",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by", where=both(kind("b"), v_than(">", "sum", "a.v")))],
        "a1/x a2/y a2/x b3/y b4/x a1/y b9/y",
        skip=PAST_LAST,
    )
