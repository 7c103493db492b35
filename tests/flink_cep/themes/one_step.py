"""What one step takes: contiguity, loops, optional and greedy steps, `until`."""

from __future__ import annotations

from itertools import product

from tests.flink_cep.case_builder import (
    CONTIGUITIES,
    INNER,
    ONE_OR_MORE,
    OPTIONAL,
    PAST_LAST,
    TO_NEXT,
    Cases,
    Json,
    both,
    kind,
    loop,
    step,
    v,
)

_LOOPS = {"times(2)": (2, 2), "times(1, 3)": (1, 3), "oneOrMore": (1, None), "timesOrMore(2)": (2, None)}


def contiguity(cases: Cases) -> None:
    for second, third in product(CONTIGUITIES, CONTIGUITIES):
        pattern = [step("a"), step("b", second), step("c", third)]
        cases.add("contiguity", f"a {second} b {third} c", pattern, "a1 b1 n1 b2 c1 a2 b3 c2 c3")
    for second in CONTIGUITIES:
        pattern = [step("a"), step("b", second, where=kind("a", "b"))]
        cases.add("contiguity", f"{second} with conditions that overlap", pattern, "a1 n1 a2 a3 b1 b2")


def quantifiers(cases: Cases) -> None:
    streams = ("a1 b1 n1 b2 b3 c1 b4 c2", "a1 n1 b1 b2 a2 b3 c1 c2")
    for number, (before, name, inner) in enumerate(product(CONTIGUITIES, _LOOPS, INNER)):
        pattern = [step("a"), step("b", before, times=loop(*_LOOPS[name], inner)), step("c", "followed_by")]
        cases.add("loop", f"a {before} b.{name}, {inner}, followed_by c", pattern, streams[number % 2])
    for name, inner in product(_LOOPS, INNER):
        cases.add(
            "loop-last",
            f"b.{name}, {inner}, at the end",
            [step("a"), step("b", "followed_by", times=loop(*_LOOPS[name], inner))],
            "a1 b1 n1 b2 b3 b4",
        )
        cases.add(
            "loop-first",
            f"a.{name}, {inner}, at the beginning",
            [step("a", times=loop(*_LOOPS[name], inner)), step("b", "followed_by")],
            "a1 n1 a2 a3 b1 b2",
        )
    for after in ("next", "followed_by_any"):
        pattern = [step("a"), step("b", "followed_by", times=ONE_OR_MORE), step("c", after)]
        cases.add("loop", f"oneOrMore, then {after}", pattern, "a1 b1 b2 n1 c1 b3 c2")
    cases.add(
        "loop",
        "two loops, one after the other",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by", times=ONE_OR_MORE)],
        "a1 b1 a2 b2 b3",
    )
    cases.add("loop", "a loop alone, of all events", [{"name": "all", "quantifier": loop(2, 3)}], "a1 b1 c1 a2")
    cases.add(
        "loop",
        "times(0, 2) is optional",
        [step("a"), step("b", "followed_by", times=loop(0, 2)), step("c", "followed_by")],
        "a1 b1 b2 b3 c1",
    )


def optional(cases: Cases) -> None:
    kinds = {"once": (1, 1), "times(2)": (2, 2), "times(1, 2)": (1, 2), "oneOrMore": (1, None)}
    for before, (name, bounds) in product(CONTIGUITIES, kinds.items()):
        pattern = [step("a"), step("b", before, times=loop(*bounds, optional=True)), step("c", "followed_by")]
        cases.add("optional", f"b {name}, optional, {before}", pattern, "a1 b1 n1 b2 c1 a2 c2")
    for name, bounds in kinds.items():
        many = loop(*bounds, optional=True)
        cases.add(
            "optional",
            f"{name}, optional, at the beginning",
            [step("a", times=many), step("b", "followed_by")],
            "a1 n1 a2 b1 b2",
        )
        cases.add(
            "optional",
            f"{name}, optional, at the end",
            [step("a"), step("b", "followed_by", times=many)],
            "a1 n1 b1 b2 a2",
        )
    cases.add("optional", "a step alone that is optional", [step("a", times=OPTIONAL)], "a1 n1 a2")
    cases.add(
        "optional",
        "all steps are optional",
        [step("a", times=OPTIONAL), step("b", "followed_by", times=OPTIONAL)],
        "n1 a1 b1 b2 a2",
    )
    cases.add(
        "optional",
        "the next step is strict after an optional one",
        [step("a"), step("b", "next", times=OPTIONAL), step("c", "next")],
        "a1 c1 a2 b1 c2 a3 n1 c3",
    )
    cases.add(
        "optional",
        "two optional steps in the middle",
        [
            step("a"),
            step("b", "followed_by", times=OPTIONAL),
            step("c", "followed_by", times=OPTIONAL),
            step("d", "followed_by"),
        ],
        "a1 b1 c1 d1 d2",
    )
    cases.add(
        "optional",
        "an optional step that takes what the next step takes",
        [step("a"), step("b", "followed_by", times=OPTIONAL), step("c", "followed_by", where=kind("b", "c"))],
        "a1 b1 b2 c1",
    )


def greedy(cases: Cases) -> None:
    kinds = {"oneOrMore": (1, None), "times(1, 3)": (1, 3), "timesOrMore(2)": (2, None), "times(2)": (2, 2)}
    ends = both(kind("b", "c"), v(">=", 5))
    for before, (name, bounds), maybe in product(CONTIGUITIES, kinds.items(), (False, True)):
        pattern = [
            step("a"),
            step("b", before, times=loop(*bounds, optional=maybe, greedy=True)),
            step("c", "followed_by", where=ends),
        ]
        about = f"b.{name}{', optional' if maybe else ''}, greedy, {before}; c takes some of what b takes"
        cases.add("greedy", about, pattern, "a1 b1 b6 n1 b2 c7 b8")
    for after in CONTIGUITIES:
        pattern = [step("a"), step("b", "followed_by", times=loop(1, None, greedy=True)), step("c", after, where=ends)]
        cases.add("greedy", f"greedy, consecutive events, then {after}", pattern, "a1 b1 b6 b2 c7 c8")
    strict = loop(1, None, "consecutive", greedy=True)
    cases.add(
        "greedy",
        "greedy and consecutive",
        [step("a"), step("b", "followed_by", times=strict), step("c", "followed_by", where=ends)],
        "a1 b1 b6 n1 b7 c8",
    )
    cases.add(
        "greedy",
        "greedy at the beginning",
        [step("a", times=loop(1, None, greedy=True)), step("b", "followed_by", where=kind("a", "b"))],
        "a1 a2 n1 a3 b1 b2",
    )
    cases.add(
        "greedy",
        "greedy at the beginning, then next",
        [step("a", times=loop(1, None, greedy=True)), step("b", "next", where=kind("a", "b"))],
        "a1 a2 n1 a3 b1 b2",
    )
    cases.add(
        "greedy",
        "greedy at the end",
        [step("a"), step("b", "followed_by", times=loop(1, None, greedy=True))],
        "a1 b1 b2 n1 b3",
    )
    cases.add(
        "greedy",
        "greedy, before a step that is a loop",
        [
            step("a"),
            step("b", "followed_by", times=loop(1, None, greedy=True)),
            step("c", "followed_by", where=kind("b", "c"), times=ONE_OR_MORE),
        ],
        "a1 b1 b2 c1 c2",
    )
    for skip in (TO_NEXT, PAST_LAST):
        pattern = [step("a", times=loop(1, None, greedy=True)), step("b", "followed_by")]
        cases.add("greedy", f"greedy at the beginning, {skip['strategy']}", pattern, "a1 a2 b1 a3 b2", skip=skip)
    any_after = [step("a"), step("b", "followed_by", times=loop(1, None, greedy=True)), step("c", "followed_by_any")]
    cases.add("greedy", "greedy, then followed_by_any, with conditions that differ", any_after, "a1 b1 b2 c1 b3 c2")
    all_of_three = [
        step("a"),
        step("b", "followed_by", times=loop(1, 2, greedy=True)),
        step("c", "followed_by", where=ends),
    ]
    cases.add("greedy", "greedy times(1, 2) of three b: the third is left over", all_of_three, "a1 b1 b2 b3 c7 c8")
    cases.add("greedy", "the same, and no b is left over", all_of_three, "a1 b1 b2 n1 c7 c8")
    combined = [
        step("a"),
        step("b", "followed_by", times=loop(1, None, "allow_combinations", greedy=True)),
        step("c", "followed_by", where=ends),
    ]
    cases.add("greedy", "greedy that allows combinations", combined, "a1 b1 b2 b6 c7")
    never = [
        step("a"),
        step("b", "followed_by", times=loop(1, None, greedy=True)),
        step("x", "not_followed_by"),
        step("c", "followed_by"),
    ]
    cases.add("greedy", "greedy, and then a step that must not come", never, "a1 b1 b2 c1 a2 b3 x1 c2")


def until(cases: Cases) -> None:
    stop = kind("s")
    for inner in INNER:
        pattern = [
            step("a"),
            step("b", "followed_by", times=loop(1, None, inner), until=stop),
            step("c", "followed_by"),
        ]
        cases.add("until", f"oneOrMore, {inner}, until s", pattern, "a1 b1 n1 b2 s1 b3 c1")
    many: dict[str, Json] = {
        "timesOrMore(2)": loop(2, None),
        "oneOrMore, optional": loop(1, None, optional=True),
        "oneOrMore, greedy": loop(1, None, greedy=True),
        "oneOrMore, optional, greedy": loop(1, None, optional=True, greedy=True),
    }
    for name, times in many.items():
        pattern = [step("a"), step("b", "followed_by", times=times, until=stop), step("c", "followed_by")]
        cases.add("until", f"{name}, until s", pattern, "a1 b1 b2 s1 b3 c1")
        cases.add("until", f"{name}, until s before the first b", pattern, "a1 s1 b1 b2 c1")
    for name, times in many.items():
        pattern = [
            step("a"),
            step("b", "followed_by", times=times, until=both(kind("b"), v(">", 5))),
            step("c", "followed_by", where=kind("b", "c")),
        ]
        cases.add("until", f"{name}, until a b that the next step takes", pattern, "a1 b1 b2 b9 b3 c1")
    cases.add(
        "until",
        "a loop at the end, until s",
        [step("a"), step("b", "followed_by", times=ONE_OR_MORE, until=stop)],
        "a1 b1 b2 s1 b3",
    )
    cases.add(
        "until",
        "a loop at the beginning, until s",
        [step("a", times=ONE_OR_MORE, until=stop), step("b", "followed_by")],
        "a1 a2 s1 a3 b1",
    )
    cases.add(
        "until",
        "until by the events taken so far",
        [
            step("a"),
            step("b", "followed_by", times=ONE_OR_MORE, until={"sum": "b.v", "op": ">=", "value": 5}),
            step("c", "followed_by"),
        ],
        "a1 b2 b3 b4 c1",
    )
    cases.add(
        "until",
        "until within, and what times out",
        [step("a"), step("b", "followed_by", times=ONE_OR_MORE, until=stop), step("c", "followed_by")],
        "a1 b1 s1 b2 c1=12 n1=40",
        within_ms=10,
    )
    first = [step("a"), step("b", "followed_by", times=ONE_OR_MORE, until=v(">", 5)), step("c", "followed_by")]
    cases.add("until", "until holds for the event that would begin the loop", first, "a1 b9 b1 b8 b2 c1")
