"""What follows a match, and what Flink does not accept: skip strategies, refusals."""

from __future__ import annotations

from itertools import product

from tests.flink_cep.case_builder import (
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
    skip_to,
    step,
    v,
    v_than,
)


def skips(cases: Cases) -> None:
    strategies = (NO_SKIP, TO_NEXT, PAST_LAST, skip_to("first", "b"), skip_to("last", "b"))
    shapes: dict[str, tuple[list[Json], str]] = {
        "b+ c": ([step("b", times=ONE_OR_MORE), step("c", "followed_by")], "b1 b2 b3 c1 b4 c2"),
        "a any b any c": ([step("a"), step("b", "followed_by_any"), step("c", "followed_by_any")], "a1 a2 b1 b2 c1 c2"),
        "a b+ c": (
            [step("a"), step("b", "followed_by", times=ONE_OR_MORE), step("c", "followed_by")],
            "a1 b1 a2 b2 c1 c2",
        ),
        "a b+": ([step("a"), step("b", "followed_by", times=ONE_OR_MORE)], "a1 b1 a2 b2 b3"),
        "a | b{2} combinations": (
            [step("a", where=kind("a", "b")), step("b", "followed_by", times=loop(2, 2, "allow_combinations"))],
            "a1 b1 b2 b3 b4",
        ),
        "a b? c": (
            [step("a"), step("b", "followed_by", times=OPTIONAL), step("c", "followed_by")],
            "a1 a2 b1 a3 c1 c2",
        ),
        "strict a+ b c": (
            [step("a", times=loop(1, None, "consecutive")), step("b", "next"), step("c", "next")],
            "a1 a2 b1 c1 a3 b2 c2",
        ),
    }
    for (shape, (pattern, stream)), skip in product(shapes.items(), strategies):
        cases.add("skip", f"{shape}, {skip['strategy']}", pattern, stream, skip=skip)
    ab = [step("a", times=OPTIONAL), step("b", "followed_by")]
    for which in ("first", "last"):
        cases.add("skip-miss", f"skip_to_{which} of a step without events", ab, "b1 a1 b2 b3", skip=skip_to(which, "a"))
        cases.add(
            "skip-miss",
            f"skip_to_{which} of a step without events, which throws",
            ab,
            "b1 a1 b2",
            skip=skip_to(which, "a", throws=True),
        )
    both_steps = [step("a", times=ONE_OR_MORE), step("b", "followed_by")]
    cases.add(
        "skip-miss",
        "skip_to_first of the first event, which throws",
        both_steps,
        "a1 a2 b1",
        skip=skip_to("first", "a", throws=True),
    )
    cases.add("skip-miss", "skip_to_first of the first event", both_steps, "a1 a2 b1", skip=skip_to("first", "a"))
    cases.add(
        "skip-miss",
        "skip_to_last that never misses, which throws",
        [step("a"), step("b", "followed_by")],
        "a1 a2 b1 b2",
        skip=skip_to("last", "b", throws=True),
    )
    waits = [step("a"), step("b", "followed_by", where=both(kind("b"), v_than("=", "last", "a.v")))]
    stream = "a1 a2 b2 n1 b1"
    for skip in (NO_SKIP, TO_NEXT, PAST_LAST):
        cases.add("skip-wait", f"{skip['strategy']}: the later beginning is complete first", waits, stream, skip=skip)
    for skip in (TO_NEXT, PAST_LAST):
        cases.add(
            "skip-wait",
            f"{skip['strategy']}: the earlier beginning is never complete",
            waits,
            "a1 a2 b2 n1 b2",
            skip=skip,
        )
        cases.add(
            "skip-wait",
            f"{skip['strategy']}: the earlier beginning times out",
            waits,
            "a1 a2 b2 n1=20 a3 b3",
            skip=skip,
            within_ms=10,
        )
    cases.add(
        "skip-wait",
        "skip_past_last_event: matches discard partial matches, which then do not time out",
        both_steps,
        "a1 a2 b1 a3 n1=40",
        skip=PAST_LAST,
        within_ms=10,
    )
    must_not = [step("a"), step("x", "not_followed_by"), step("b", "followed_by")]
    cases.add(
        "skip-miss", "skip_to_first of a step that must not come", must_not, "a1 a2 b1", skip=skip_to("first", "x")
    )
    ties = [step("a"), step("b", "followed_by", times=loop(1, None, "allow_combinations")), step("c", "followed_by")]
    for skip in (NO_SKIP, TO_NEXT):
        cases.add("skip", f"many matches begin with one event, {skip['strategy']}", ties, "a1 b1 b2 b3 c1", skip=skip)


def refused(cases: Cases) -> None:
    a, b = step("a"), step("b", "followed_by")
    patterns: dict[str, list[Json]] = {
        "not_followed_by at the end without within": [a, step("x", "not_followed_by")],
        "an optional not_next": [a, step("x", "not_next", times=OPTIONAL), b],
        "an optional not_followed_by": [a, step("x", "not_followed_by", times=OPTIONAL), b],
        "a loop of not_followed_by": [a, step("x", "not_followed_by", times=ONE_OR_MORE), b],
        "not_next after an optional step": [step("a", times=OPTIONAL), step("x", "not_next"), b],
        "not_followed_by after an optional step": [
            a,
            step("b", "followed_by", times=OPTIONAL),
            step("x", "not_followed_by"),
            step("c", "followed_by"),
        ],
        "greedy on one event": [a, step("b", "followed_by", times=loop(1, 1, greedy=True)), step("c", "followed_by")],
        "a greedy group": [
            a,
            group([step("b"), step("c", "followed_by")], "followed_by", loop(1, None, greedy=True)),
            step("d", "followed_by"),
        ],
        "optional after greedy": [
            step("a", times=loop(1, None, greedy=True)),
            step("b", "followed_by", times=OPTIONAL),
            step("c", "followed_by"),
        ],
        "until without a loop": [a, step("b", "followed_by", until=kind("s"))],
        "until of times(2, 3)": [a, step("b", "followed_by", times=loop(2, 3), until=kind("s"))],
        "consecutive on one event": [a, step("b", "followed_by", times=loop(1, 1, "consecutive"))],
        "combinations on one event": [a, step("b", "followed_by", times=loop(1, 1, "allow_combinations"))],
        "times(0)": [a, step("b", "followed_by", times=loop(0, 0))],
        "times(3, 2)": [a, step("b", "followed_by", times=loop(3, 2))],
        "two steps of one name": [a, step("a", "followed_by")],
        "two steps of one name, one of them in a group": [
            a,
            group([step("a"), step("b", "followed_by")], "followed_by"),
        ],
        "a condition of a group": [
            a,
            {**group([step("b"), step("c", "followed_by")], "followed_by"), "where": v(">", 1)},
        ],
    }
    for about, pattern in patterns.items():
        cases.add("refused", about, pattern, "a1 b1 b2 x1 c1 d1")
    cases.add(
        "refused",
        "a time from the event before that is above the time of the whole",
        [a, step("b", "followed_by", within_previous_ms=20)],
        "a1 b1",
        within_ms=10,
    )
    cases.add("refused", "a skip to a step that is not there", [a, b], "a1 b1", skip=skip_to("first", "q"))
    cases.add(
        "refused",
        "a skip to a step of a group",
        [a, group([step("b"), step("c", "followed_by")], "followed_by")],
        "a1 b1 c1",
        skip=skip_to("first", "c"),
    )
