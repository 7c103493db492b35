"""Short notation for the cases of the corpus: conditions, steps, loops and events, as the JSON of README.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

Json = dict[str, object]
Event = tuple[int, str, int, str, int]

CONTIGUITIES = ("next", "followed_by", "followed_by_any")
INNER = ("relaxed", "consecutive", "allow_combinations")
NO_SKIP: Json = {"strategy": "no_skip"}
TO_NEXT: Json = {"strategy": "skip_to_next"}
PAST_LAST: Json = {"strategy": "skip_past_last_event"}
_TOKEN = re.compile(r"(?P<kind>[a-z]+)(?P<v>-?\d+)(?:/(?P<key>\w+))?(?:=(?P<time>-?\d+))?")


def skip_to(which: str, name: str, *, throws: bool = False) -> Json:
    """The strategy that goes on at the `first` or the `last` event of a step."""
    skip: Json = {"strategy": f"skip_to_{which}", "step": name}
    return {**skip, "on_miss": "throw"} if throws else skip


def kind(*names: str) -> Json:
    """The event is of one of these kinds."""
    equal: list[Json] = [{"field": "kind", "op": "=", "value": name} for name in names]
    return equal[0] if len(equal) == 1 else {"or": equal}


def both(*conditions: Json) -> Json:
    return {"and": list(conditions)}


def v(op: str, value: int) -> Json:
    """The event's `v` compared with a constant."""
    return {"field": "v", "op": op, "value": value}


def v_than(op: str, function: str, of: str, *, if_none: bool = False) -> Json:
    """The event's `v` compared with `last(a.v)`, `first(a.v)`, `sum(a.v)` or `count(a)`."""
    than: Json = {"field": "v", "op": op, "than": {function: of}}
    return {**than, "if_none": True} if if_none else than


def loop(
    least: int,
    most: int | None,
    inner: str = "relaxed",
    *,
    optional: bool = False,
    greedy: bool = False,
    within_ms: int | None = None,
) -> Json:
    quantifier: Json = {"min": least, "max": most, "optional": optional, "greedy": greedy, "inner": inner}
    return quantifier if within_ms is None else {**quantifier, "within_ms": within_ms}


OPTIONAL = loop(1, 1, optional=True)
ONE_OR_MORE = loop(1, None)


def step(
    name: str,
    contiguity: str | None = None,
    where: Json | None = None,
    times: Json | None = None,
    until: Json | None = None,
    within_previous_ms: int | None = None,
) -> Json:
    """A step; without `where` it takes the events of the kind that is the first letter of its name."""
    parts: Json = {
        "name": name,
        "contiguity": contiguity,
        "where": kind(name[0]) if where is None else where,
        "quantifier": times,
        "until": until,
        "within_previous_ms": within_previous_ms,
    }
    return {part: value for part, value in parts.items() if value is not None}


def group(steps: Sequence[Json], contiguity: str | None = None, times: Json | None = None, **rest: Json) -> Json:
    parts: Json = {"group": list(steps), "contiguity": contiguity, "quantifier": times, **rest}
    return {part: value for part, value in parts.items() if value is not None}


def events(text: str) -> list[Event]:
    """Events from words such as `a3`, `b1/y` (key y) and `c2=20` (at 20 ms); else the key is x, the time 1 ms later."""
    found: list[Event] = []
    time_ms = 0
    for number, word in enumerate(text.split(), start=1):
        token = _TOKEN.fullmatch(word)
        if token is None:
            raise ValueError(f"{word!r} is no event")
        time_ms = int(token["time"]) if token["time"] else time_ms + 1
        found.append((number, token["key"] or "x", time_ms, token["kind"], int(token["v"])))
    return found


@dataclass
class Cases:
    """Cases in the order in which they are added; each gets its theme and a number as id."""

    rows: list[Json] = field(default_factory=list)
    _numbers: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        theme: str,
        about: str,
        pattern: Sequence[Json],
        stream: str,
        *,
        skip: Json = NO_SKIP,
        within_ms: int | None = None,
        disorder_ms: int | None = 0,
    ) -> None:
        self._numbers[theme] += 1
        self.rows.append(
            {
                "id": f"{theme}-{self._numbers[theme]}",
                "about": about,
                "pattern": list(pattern),
                "within_ms": within_ms,
                "skip": skip,
                "disorder_ms": disorder_ms,
                "events": events(stream),
            }
        )
