"""Patterns that are more than a chain of steps: groups, conditions over earlier events, steps that must not come."""

from __future__ import annotations

from tests.flink_cep.case_builder import (
    CONTIGUITIES,
    INNER,
    NO_SKIP,
    ONE_OR_MORE,
    OPTIONAL,
    PAST_LAST,
    TO_NEXT,
    Cases,
    Json,
    both,
    group,
    kind,
    loop,
    step,
    v,
    v_than,
)


def groups(cases: Cases) -> None:
    bc = [step("b"), step("c", "followed_by")]
    kinds: dict[str, Json | None] = {
        "once": None,
        "optional": OPTIONAL,
        "times(2)": loop(2, 2),
        "times(1, 2)": loop(1, 2),
        "oneOrMore": ONE_OR_MORE,
        "timesOrMore(2)": loop(2, None),
        "oneOrMore, optional": loop(1, None, optional=True),
        "oneOrMore, consecutive": loop(1, None, "consecutive"),
        "oneOrMore, combinations": loop(1, None, "allow_combinations"),
        "times(2), consecutive": loop(2, 2, "consecutive"),
    }
    for name, times in kinds.items():
        pattern = [step("a"), group(bc, "followed_by", times), step("d", "followed_by")]
        cases.add("group", f"a (b c) d, the group {name}", pattern, "a1 b1 c1 n1 b2 c2 d1")
    for name in ("optional", "oneOrMore", "times(2)"):
        cases.add(
            "group",
            f"(b c) d, the group {name}, at the beginning",
            [group(bc, None, kinds[name]), step("d", "followed_by")],
            "b1 n1 c1 b2 c2 d1 d2",
        )
        cases.add(
            "group",
            f"a (b c), the group {name}, at the end",
            [step("a"), group(bc, "followed_by", kinds[name])],
            "a1 b1 n1 c1 b2 c2",
        )
    for before in ("next", "followed_by_any"):
        pattern = [step("a"), group([step("b"), step("c", before)], before, ONE_OR_MORE), step("d", before)]
        cases.add("group", f"a (b {before} c)+, each by {before}", pattern, "a1 b1 c1 b2 c2 d1 d2")
    inner_loop = [step("b", times=ONE_OR_MORE), step("c", "followed_by", times=OPTIONAL)]
    cases.add(
        "group",
        "a group with a loop and an optional step",
        [step("a"), group(inner_loop, "followed_by", loop(1, 2)), step("d", "followed_by")],
        "a1 b1 b2 c1 b3 d1",
    )
    nested = [step("b"), group([step("c"), step("d", "next")], "followed_by", ONE_OR_MORE)]
    cases.add(
        "group",
        "a group in a group",
        [step("a"), group(nested, "followed_by", loop(1, 2)), step("e", "followed_by")],
        "a1 b1 c1 d1 c2 d2 b2 c3 d3 e1",
    )
    cases.add(
        "group",
        "conditions over the events of a group",
        [
            step("a"),
            group(
                [step("b", where=both(kind("b"), v_than(">", "last", "b.v", if_none=True))), step("c", "followed_by")],
                "followed_by",
                ONE_OR_MORE,
            ),
            step("d", "followed_by"),
        ],
        "a1 b1 c1 b3 c2 b2 c3 d1",
    )
    cases.add(
        "group",
        "a group that must end in time",
        [step("a"), group(bc, "followed_by", loop(2, 2)), step("d", "followed_by")],
        "a1 b1 c1 b2 c2=12 d1 n1=40",
        within_ms=10,
    )
    cases.add(
        "group",
        "a group with until",
        [step("a"), group(bc, "followed_by", ONE_OR_MORE, until=kind("s")), step("d", "followed_by")],
        "a1 b1 c1 s1 b2 c2 d1",
    )
    cases.add("group", "a group, skip_past_last_event", [group(bc, None, ONE_OR_MORE)], "b1 c1 b2 c2", skip=PAST_LAST)
    cases.add(
        "group",
        "not_followed_by in a group",
        [
            step("a"),
            group([step("b"), step("x", "not_followed_by"), step("c", "followed_by")], "followed_by", loop(1, 2)),
            step("d", "followed_by"),
        ],
        "a1 b1 x1 c1 b2 c2 d1",
    )
    no_x = [step("b"), step("x", "not_followed_by"), step("c", "followed_by")]
    pattern = [step("a"), group(no_x, "followed_by", loop(1, 2)), step("d", "followed_by")]
    cases.add("group", "not_followed_by in a group that repeats", pattern, "a1 b1 c1 b2 x1 c2 d1")
    pattern = [step("a"), group([step("b"), step("x", "not_followed_by")], "followed_by")]
    cases.add("group", "not_followed_by at the end of a group, with within", pattern, "a1 b1 n1=30", within_ms=10)
    twice = [step("a"), group(bc, "followed_by", ONE_OR_MORE), step("d", "followed_by")]
    cases.add("group", "a loop of a group, and no event between its rounds and d", twice, "a1 b1 c1 b2 c2 d1 d2")
    cases.add("group", "a loop of a group, and an event before d", twice, "a1 b1 c1 n1 d1 d2")
    strict = [step("a"), group([step("b"), step("c", "next")], "next", loop(1, None, "consecutive")), step("d", "next")]
    cases.add("group", "a strict loop of a group, consecutive", strict, "a1 b1 c1 b2 c2 d1 d2")


def iterative(cases: Cases) -> None:
    rising = both(kind("b"), v_than(">", "last", "b.v", if_none=True))
    for inner in INNER:
        pattern = [
            step("a"),
            step("b", "followed_by", where=rising, times=loop(1, None, inner)),
            step("c", "followed_by"),
        ]
        cases.add("iterative", f"each b is above the last, {inner}", pattern, "a1 b3 b1 b4 b2 c1")
    rising_first = both(kind("a"), v_than(">", "last", "a.v", if_none=True))
    cases.add(
        "iterative",
        "a rising loop at the beginning",
        [
            step("a", where=rising_first, times=ONE_OR_MORE),
            step("b", "followed_by", where=both(kind("b"), v_than("<", "last", "a.v"))),
        ],
        "a1 a3 a2 a4 b9 b2",
    )
    for function, of in (("last", "a.v"), ("first", "a.v"), ("sum", "a.v"), ("count", "a")):
        pattern = [
            step("a", times=ONE_OR_MORE),
            step("b", "followed_by", where=both(kind("b"), v_than("=", function, of))),
        ]
        cases.add("iterative", f"b is {function} of the a", pattern, "a3 a1 b2 b1 b4 b3")
    small_sum: Json = both(kind("b"), {"sum": "b.v", "op": "<", "value": 5})
    cases.add(
        "iterative",
        "the sum of the b so far bounds the loop",
        [step("a"), step("b", "followed_by", where=small_sum, times=ONE_OR_MORE), step("c", "followed_by")],
        "a1 b2 b2 b2 b2 c1",
    )
    enough: Json = both(kind("c"), {"count": "b", "op": ">=", "value": 2})
    cases.add(
        "iterative",
        "c needs two b",
        [step("a"), step("b", "followed_by", times=ONE_OR_MORE), step("c", "followed_by", where=enough)],
        "a1 b1 c1 b2 c2 b3 c3",
    )
    none_before = both(kind("c"), v_than(">", "last", "b.v"))
    cases.add(
        "iterative",
        "the last of a step that has no event",
        [step("a"), step("b", "followed_by", times=OPTIONAL), step("c", "followed_by", where=none_before)],
        "a1 c5 b1 c6 c0",
    )
    cases.add(
        "iterative",
        "two steps of one kind, the second above the first",
        [step("a"), step("a2", "followed_by", where=both(kind("a"), v_than(">", "last", "a.v")))],
        "a3 a2 a4 a1 a5",
    )
    cases.add(
        "iterative",
        "followed_by_any with the last of another step",
        [
            step("a"),
            step("b", "followed_by_any", where=both(kind("b"), v_than(">", "last", "a.v"))),
            step("c", "followed_by", where=both(kind("c"), v_than("<", "sum", "b.v"))),
        ],
        "a2 b1 b3 b5 c4 c2",
    )
    greedy_rising = loop(1, None, greedy=True)
    cases.add(
        "iterative",
        "a greedy rising loop",
        [
            step("a"),
            step("b", "followed_by", where=rising, times=greedy_rising),
            step("c", "followed_by", where=kind("b", "c")),
        ],
        "a1 b1 b3 b2 b4 c1",
    )
    cases.add(
        "iterative",
        "not_followed_by with the last of another step",
        [
            step("a"),
            step("x", "not_followed_by", where=both(kind("x"), v_than(">", "last", "a.v"))),
            step("b", "followed_by"),
        ],
        "a3 x2 b1 a1 x2 b2",
    )
    cases.add(
        "iterative",
        "two fields and a negation",
        [
            step("a", where={"not": kind("n")}),
            step(
                "b",
                "next",
                where={"or": [both(kind("b"), v(">", 5)), {"field": "v", "op": "=", "than": {"first": "a.v"}}]},
            ),
        ],
        "a1 n1 b2 b9 c9 a2",
    )


def negation(cases: Cases) -> None:
    for after in CONTIGUITIES:
        cases.add(
            "not",
            f"a not_followed_by x {after} b",
            [step("a"), step("x", "not_followed_by"), step("b", after)],
            "a1 b1 a2 x1 b2 a3 n1 b3 b4",
        )
        cases.add(
            "not",
            f"a not_next x {after} b",
            [step("a"), step("x", "not_next"), step("b", after)],
            "a1 b1 a2 x1 b2 a3 n1 x2 b3",
        )
    cases.add(
        "not",
        "two steps that must not come",
        [step("a"), step("x", "not_followed_by"), step("y", "not_followed_by"), step("b", "followed_by")],
        "a1 b1 a2 y1 b2 a3 x1 b3 a4 b4",
    )
    cases.add(
        "not",
        "not_next and then not_followed_by",
        [step("a"), step("x", "not_next"), step("y", "not_followed_by"), step("b", "followed_by")],
        "a1 n1 x1 b1 a2 x2 b2 a3 n2 y1 b3",
    )
    cases.add(
        "not",
        "not_followed_by whose condition overlaps with the next step",
        [step("a"), step("x", "not_followed_by", where=both(kind("b"), v(">", 5))), step("b", "followed_by")],
        "a1 b9 a2 b1 a3 n1 b2",
    )
    cases.add(
        "not",
        "not_followed_by after a loop",
        [step("a", times=ONE_OR_MORE), step("x", "not_followed_by"), step("b", "followed_by")],
        "a1 a2 x1 a3 b1",
    )
    for name, times in {
        "a loop": ONE_OR_MORE,
        "an optional step": OPTIONAL,
        "an optional loop": loop(1, None, optional=True),
    }.items():
        pattern = [
            step("a"),
            step("x", "not_followed_by"),
            step("b", "followed_by", times=times),
            step("c", "followed_by"),
        ]
        cases.add("not", f"not_followed_by before {name}", pattern, "a1 b1 x1 c1 a2 x2 b2 c2 a3 c3")
    cases.add("not", "not_next at the end", [step("a"), step("x", "not_next")], "a1 x1 a2 n1 a3")
    cases.add(
        "not", "not_next at the end, with within", [step("a"), step("x", "not_next")], "a1 x1 a2 a3 n1=30", within_ms=10
    )
    stream = "a1 n1 x1 a2=20 n2 x2=29 a3=40 x3=50 a4=60 n4=69"
    cases.add(
        "not-end",
        "not_followed_by at the end: x 1 ms in time, and just at the end",
        [step("a"), step("x", "not_followed_by")],
        stream,
        within_ms=10,
    )
    cases.add(
        "not-end",
        "the same, with its time from the event before",
        [step("a"), step("x", "not_followed_by", within_previous_ms=10)],
        stream,
    )
    cases.add(
        "not-end",
        "the same, and no watermark before the end",
        [step("a"), step("x", "not_followed_by")],
        stream,
        within_ms=10,
        disorder_ms=None,
    )
    two = [step("a"), step("b", "followed_by"), step("x", "not_followed_by")]
    cases.add("not-end", "a, b, and no x within", two, "a1 b1=5 n1=10 a2=20 b2=25 x1=29 a3=40 n2=60", within_ms=10)
    cases.add(
        "not-end",
        "a, b, and no x after b in time",
        [step("a"), step("b", "followed_by"), step("x", "not_followed_by", within_previous_ms=5)],
        "a1 b1=5 x1=10 a2=20 b2=25 x2=29 a3=40 n2=60",
    )
    any_b = [step("a"), step("b", "followed_by_any"), step("x", "not_followed_by")]
    for skip in (NO_SKIP, TO_NEXT, PAST_LAST):
        cases.add(
            "not-end",
            f"not_followed_by at the end, {skip['strategy']}",
            any_b,
            "a1 b1 a2 b2 n1=8 x1=12 n2=40",
            within_ms=10,
            skip=skip,
        )
    cases.add(
        "not-end",
        "not_followed_by at the end, after a loop",
        [step("a", times=ONE_OR_MORE), step("x", "not_followed_by")],
        "a1 a2 a3=15 x1=20 n1=40",
        within_ms=10,
    )
    cases.add(
        "not-end",
        "two steps at the end that must not come",
        [step("a"), step("x", "not_followed_by"), step("y", "not_followed_by")],
        "a1 n1=20 a2=21 x1 n2=40 a3=41 y1 n3=60",
        within_ms=10,
    )
    quiet = "a1=10 n1/y=12 n2/y=30 n3/y=40"
    cases.add("not-end", "the key has no other event", [step("a"), step("x", "not_followed_by")], quiet, within_ms=10)
    previous = [step("a"), step("x", "not_followed_by", within_previous_ms=10)]
    cases.add("not-end", "the same, with its time from the event before", previous, quiet)
    after_loop = [step("a", times=ONE_OR_MORE), step("x", "not_followed_by")]
    cases.add(
        "not-end",
        "after a loop, and an event of no step comes in time",
        after_loop,
        "a1 a2 n1 a3=15 n2=16 n3=40",
        within_ms=10,
    )
    after_times = [step("a", times=loop(2, 2)), step("x", "not_followed_by")]
    cases.add("not-end", "after times(2)", after_times, "a1 a2 n1 a3=15 x1=16 n3=40", within_ms=10)
    in_between = [
        step("a"),
        step("b", "followed_by", times=ONE_OR_MORE),
        step("x", "not_followed_by"),
        step("c", "followed_by"),
    ]
    cases.add(
        "not",
        "not_followed_by between a loop and a step, with within",
        in_between,
        "a1 b1 b2 c1 b3 x1 c2=9 n1=30",
        within_ms=10,
    )
    last_maybe = [step("a"), step("x", "not_followed_by"), step("b", "followed_by", times=OPTIONAL)]
    cases.add("not", "not_followed_by before an optional step at the end", last_maybe, "a1 x1 b1 a2 b2")
    overlap = [step("a"), step("x", "not_followed_by", where=both(kind("b"), v(">", 5))), step("b", "followed_by")]
    longer = [*overlap, step("c", "followed_by")]
    cases.add(
        "not", "not_followed_by that overlaps with the next step, which is not the last", longer, "a1 b9 c1 a2 b1 c2"
    )
