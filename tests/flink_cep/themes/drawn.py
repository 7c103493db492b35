"""Patterns and streams from a seed, to meet combinations that no theme names."""

from __future__ import annotations

import random

from tests.flink_cep.case_builder import (
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
    skip_to,
    step,
    v,
    v_than,
)

MIXED_CASES = 60


def mixed(cases: Cases, rng: random.Random) -> None:
    """Draws patterns and streams, to meet combinations that no theme names."""
    for _ in range(MIXED_CASES):
        names = "abcd"[: rng.choice([2, 3, 3, 3, 4])]
        pattern = [_drawn_step(rng, name, is_first=number == 0) for number, name in enumerate(names)]
        chance = rng.random()
        if chance < 0.25:  # the last steps become a group
            cut = rng.randrange(len(pattern))
            inner = [{**pattern[cut]}, *pattern[cut + 1 :]]
            before = inner[0].pop("contiguity", None)
            times = rng.choice([OPTIONAL, loop(1, 2), loop(2, 2), ONE_OR_MORE])
            pattern = [*pattern[:cut], group(inner, str(before) if before else None, times)]
        elif chance < 0.45 and "quantifier" not in pattern[-2]:  # something must not come before the last step
            pattern.insert(len(pattern) - 1, step("x", rng.choice(["not_next", "not_followed_by"])))
        last_top_level = [str(each["name"]) for each in pattern if "name" in each and each["name"] != "x"][-1:]
        skip = rng.choice([NO_SKIP, NO_SKIP, TO_NEXT, PAST_LAST, *[skip_to("last", name) for name in last_top_level]])
        disorder_ms = rng.choice([0, 0, None, 4])
        stream = _drawn_stream(rng, names, disorder_ms or 0)
        cases.add(
            "mixed", "drawn", pattern, stream, skip=skip, within_ms=rng.choice([None, 8, 14]), disorder_ms=disorder_ms
        )


def _drawn_step(rng: random.Random, name: str, *, is_first: bool) -> Json:
    where = kind(name)
    if rng.random() < 0.15:
        where = both(kind(*dict.fromkeys(["a", name])), v(rng.choice(["<", ">"]), rng.randint(3, 6)))
    elif not is_first and rng.random() < 0.2:
        than = v_than(rng.choice(["<", ">="]), rng.choice(["first", "last", "sum"]), "a.v", if_none=rng.random() < 0.5)
        where = both(where, than)
    times, stop = None, None
    if rng.random() < 0.5:
        bounds = rng.choice([(1, 1), (2, 2), (1, 2), (1, None), (1, None), (2, None)])
        inner = "relaxed" if bounds == (1, 1) else rng.choice(INNER)
        maybe = bounds == (1, 1) or rng.random() < 0.2
        takes_all = bounds != (1, 1) and inner != "allow_combinations" and rng.random() < 0.2
        times = loop(*bounds, inner, optional=maybe, greedy=takes_all)
        if bounds[1] is None and rng.random() < 0.25:
            stop = v("=", rng.randint(1, 9))
    before = None if is_first else rng.choice(["next", "followed_by", "followed_by", "followed_by_any"])
    return step(name, before, where, times, stop)


def _drawn_stream(rng: random.Random, names: str, disorder_ms: int) -> str:
    """Rounds of the pattern's kinds in their order, some twice, with noise, for one key or two."""
    time_ms = 10
    words: list[str] = []
    keys = rng.choice(["x", "x", "xy"])
    while len(words) < 8:
        for name in names:
            for _ in range(rng.choice([0, 1, 1, 2])):
                time_ms += rng.choice([0, 1, 1, 2])
                shown = name if rng.random() < 0.85 else rng.choice("nx")
                at = time_ms - rng.randint(0, disorder_ms)
                words.append(f"{shown}{rng.randint(1, 9)}/{rng.choice(keys)}={at}")
    return " ".join(words[:12])
