"""Makes the cases that Flink's CEP library judges: `python -m tests.flink_cep.generate CASES.jsonl`.

Most themes are products of features over one stream that was written for them. The theme `mixed` draws patterns and
streams from a fixed seed.
"""

from __future__ import annotations

import json
import random
import sys
from itertools import product
from pathlib import Path

from tests.flink_cep.case_builder import (
    NO_SKIP,
    ONE_OR_MORE,
    OPTIONAL,
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

SEED = 19
MIXED_CASES = 40

_CONTIGUITIES = ("next", "followed_by", "followed_by_any")
_INNER = ("relaxed", "consecutive", "allow_combinations")
_LOOPS = {"times(2)": (2, 2), "times(1, 3)": (1, 3), "oneOrMore": (1, None), "timesOrMore(2)": (2, None)}
_TO_NEXT: Json = {"strategy": "skip_to_next"}
_PAST_LAST: Json = {"strategy": "skip_past_last_event"}


def _to(which: str, name: str, *, throws: bool = False) -> Json:
    skip: Json = {"strategy": f"skip_to_{which}", "step": name}
    return {**skip, "on_miss": "throw"} if throws else skip


def contiguity(cases: Cases) -> None:
    for second, third in product(_CONTIGUITIES, _CONTIGUITIES):
        pattern = [step("a"), step("b", second), step("c", third)]
        cases.add("contiguity", f"a {second} b {third} c", pattern, "a1 b1 n1 b2 c1 a2 b3 c2 c3")
    for second in _CONTIGUITIES:
        pattern = [step("a"), step("b", second, where=kind("a", "b"))]
        cases.add("contiguity", f"{second} with conditions that overlap", pattern, "a1 n1 a2 a3 b1 b2")


def quantifiers(cases: Cases) -> None:
    streams = ("a1 b1 n1 b2 b3 c1 b4 c2", "a1 n1 b1 b2 a2 b3 c1 c2")
    for number, (before, name, inner) in enumerate(product(_CONTIGUITIES, _LOOPS, _INNER)):
        pattern = [step("a"), step("b", before, times=loop(*_LOOPS[name], inner)), step("c", "followed_by")]
        cases.add("loop", f"a {before} b.{name}, {inner}, followed_by c", pattern, streams[number % 2])
    for name, inner in product(_LOOPS, _INNER):
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
    for before, (name, bounds) in product(_CONTIGUITIES, kinds.items()):
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
    for before, (name, bounds), maybe in product(_CONTIGUITIES, kinds.items(), (False, True)):
        pattern = [
            step("a"),
            step("b", before, times=loop(*bounds, optional=maybe, greedy=True)),
            step("c", "followed_by", where=ends),
        ]
        about = f"b.{name}{', optional' if maybe else ''}, greedy, {before}; c takes some of what b takes"
        cases.add("greedy", about, pattern, "a1 b1 b6 n1 b2 c7 b8")
    for after in _CONTIGUITIES:
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
    for skip in (_TO_NEXT, _PAST_LAST):
        pattern = [step("a", times=loop(1, None, greedy=True)), step("b", "followed_by")]
        cases.add("greedy", f"greedy at the beginning, {skip['strategy']}", pattern, "a1 a2 b1 a3 b2", skip=skip)


def skips(cases: Cases) -> None:
    strategies = (NO_SKIP, _TO_NEXT, _PAST_LAST, _to("first", "b"), _to("last", "b"))
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
        cases.add("skip-miss", f"skip_to_{which} of a step without events", ab, "b1 a1 b2 b3", skip=_to(which, "a"))
        cases.add(
            "skip-miss",
            f"skip_to_{which} of a step without events, which throws",
            ab,
            "b1 a1 b2",
            skip=_to(which, "a", throws=True),
        )
    both_steps = [step("a", times=ONE_OR_MORE), step("b", "followed_by")]
    cases.add(
        "skip-miss",
        "skip_to_first of the first event, which throws",
        both_steps,
        "a1 a2 b1",
        skip=_to("first", "a", throws=True),
    )
    cases.add("skip-miss", "skip_to_first of the first event", both_steps, "a1 a2 b1", skip=_to("first", "a"))
    cases.add(
        "skip-miss",
        "skip_to_last that never misses, which throws",
        [step("a"), step("b", "followed_by")],
        "a1 a2 b1 b2",
        skip=_to("last", "b", throws=True),
    )
    waits = [step("a"), step("b", "followed_by", where=both(kind("b"), v_than("=", "last", "a.v")))]
    stream = "a1 a2 b2 n1 b1"
    for skip in (NO_SKIP, _TO_NEXT, _PAST_LAST):
        cases.add("skip-wait", f"{skip['strategy']}: the later beginning is complete first", waits, stream, skip=skip)
    for skip in (_TO_NEXT, _PAST_LAST):
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
        skip=_PAST_LAST,
        within_ms=10,
    )


def until(cases: Cases) -> None:
    stop = kind("s")
    for inner in _INNER:
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
    cases.add("group", "a group, skip_past_last_event", [group(bc, None, ONE_OR_MORE)], "b1 c1 b2 c2", skip=_PAST_LAST)
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


def iterative(cases: Cases) -> None:
    rising = both(kind("b"), v_than(">", "last", "b.v", if_none=True))
    for inner in _INNER:
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
    for after in _CONTIGUITIES:
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
    for skip in (NO_SKIP, _TO_NEXT, _PAST_LAST):
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
        "on a step in the middle: the least time counts for the whole",
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
    for skip in (_TO_NEXT, _PAST_LAST):
        cases.add(
            "within",
            f"timed-out partial matches, {skip['strategy']}",
            [step("a"), step("b", "followed_by_any"), step("c", "followed_by_any")],
            "a1=10 b1=12 a2=13 b2=14 c1=16 n1=40",
            within_ms=10,
            skip=skip,
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
        skip=_PAST_LAST,
    )
    cases.add(
        "order",
        "one time, skip_to_next",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by")],
        "a1=10 a2=10 b1=10 a3=10 b2=10",
        skip=_TO_NEXT,
    )
    cases.add(
        "order",
        "one time, skip_to_last",
        [step("a", times=ONE_OR_MORE), step("b", "followed_by")],
        "a1=10 a2=10 b1=10 a3=10 b2=10",
        skip=_to("last", "a"),
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
        skip=_PAST_LAST,
    )


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
        "greedy after followed_by_any": [
            a,
            step("b", "followed_by_any", times=loop(1, None, greedy=True)),
            step("c", "followed_by"),
        ],
        "greedy before followed_by_any": [
            a,
            step("b", "followed_by", times=loop(1, None, greedy=True)),
            step("c", "followed_by_any"),
        ],
        "greedy before not_followed_by": [
            a,
            step("b", "followed_by", times=loop(1, None, greedy=True)),
            step("x", "not_followed_by"),
            step("c", "followed_by"),
        ],
    }
    for about, pattern in patterns.items():
        cases.add("refused", about, pattern, "a1 b1 b2 x1 c1 d1")
    cases.add(
        "refused",
        "greedy that allows combinations",
        [a, step("b", "followed_by", times=loop(1, None, "allow_combinations", greedy=True)), step("c", "followed_by")],
        "a1 b1 b2 c1",
    )
    cases.add(
        "refused",
        "not_followed_by at the end of a group",
        [a, group([step("b"), step("x", "not_followed_by")], "followed_by")],
        "a1 b1 n1=30",
        within_ms=10,
    )
    cases.add(
        "refused",
        "a time from the event before that is above the time of the whole",
        [a, step("b", "followed_by", within_previous_ms=20)],
        "a1 b1",
        within_ms=10,
    )
    cases.add("refused", "a skip to a step that is not there", [a, b], "a1 b1", skip=_to("first", "q"))
    cases.add(
        "refused",
        "a skip to a step of a group",
        [a, group([step("b"), step("c", "followed_by")], "followed_by")],
        "a1 b1 c1",
        skip=_to("first", "c"),
    )
    cases.add(
        "refused",
        "a skip to a step that must not come",
        [a, step("x", "not_followed_by"), b],
        "a1 b1",
        skip=_to("first", "x"),
    )


def mixed(cases: Cases, rng: random.Random) -> None:
    """Draws patterns and streams, to meet combinations that no theme names."""
    for _ in range(MIXED_CASES):
        names = "abcd"[: rng.randint(2, 4)]
        pattern = [_drawn_step(rng, name, is_first=number == 0) for number, name in enumerate(names)]
        if rng.random() < 0.3:  # the last steps become a group
            cut = rng.randrange(len(pattern))
            inner = [{**pattern[cut]}, *pattern[cut + 1 :]]
            before = inner[0].pop("contiguity", None)
            times = rng.choice([None, OPTIONAL, loop(1, 2), loop(2, 2), ONE_OR_MORE])
            pattern = [*pattern[:cut], group(inner, str(before) if before else None, times)]
        elif rng.random() < 0.25:  # something must not come before the last step
            pattern.insert(len(pattern) - 1, step("x", rng.choice(["not_next", "not_followed_by"])))
        time_ms, words = 0, []
        for _ in range(rng.randint(7, 10)):
            time_ms += rng.choice([0, 1, 1, 2, 4])
            words.append(f"{rng.choice(names * 3 + 'nx')}{rng.randint(1, 9)}={10 + time_ms}")
        top_level = [str(each["name"]) for each in pattern if "name" in each]
        skip = rng.choice(
            [NO_SKIP, NO_SKIP, _TO_NEXT, _PAST_LAST, *[_to("last", name) for name in top_level[-1:] if name != "x"]]
        )
        within_ms = rng.choice([None, 6, 10])
        cases.add(
            "mixed",
            "drawn",
            pattern,
            " ".join(words),
            skip=skip,
            within_ms=within_ms,
            disorder_ms=rng.choice([0, None]),
        )


def _drawn_step(rng: random.Random, name: str, *, is_first: bool) -> Json:
    where = kind(name)
    if rng.random() < 0.25:
        where = both(kind("a", name), v(rng.choice(["<", ">"]), rng.randint(3, 6)))
    elif not is_first and rng.random() < 0.3:
        where = both(
            where,
            v_than(rng.choice(["<", ">="]), rng.choice(["first", "last", "sum"]), "a.v", if_none=rng.random() < 0.5),
        )
    times, stop = None, None
    if rng.random() < 0.55:
        bounds = rng.choice([(1, 1), (2, 2), (1, 2), (1, None), (1, None), (2, None)])
        inner = "relaxed" if bounds == (1, 1) else rng.choice(_INNER)
        maybe = bounds == (1, 1) or rng.random() < 0.2
        takes_all = bounds != (1, 1) and inner != "allow_combinations" and rng.random() < 0.2
        times = loop(*bounds, inner, optional=maybe, greedy=takes_all)
        if bounds[1] is None and rng.random() < 0.25:
            stop = v("=", rng.randint(1, 9))
    return step(name, None if is_first else rng.choice(_CONTIGUITIES), where, times, stop)


def generate() -> list[Json]:
    cases = Cases()
    for theme in (
        contiguity,
        quantifiers,
        optional,
        greedy,
        skips,
        until,
        groups,
        iterative,
        negation,
        within,
        time_order,
        refused,
    ):
        theme(cases)
    mixed(cases, random.Random(SEED))
    return cases.rows


def main() -> None:
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in generate()), encoding="utf-8")


if __name__ == "__main__":
    main()
