"""Patterns and events by seed, as data for the reference (``brute_force``) and as patterns for the engine."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.durations import Milliseconds
from streamcore.patterns.expressions import MatchExpression, candidate, matched
from streamcore.patterns.pattern import AfterMatchSkip, Contiguity, Pattern, SkipKind, WithinType
from tests.harness.patterns.brute_force import Event, Item, Predicate

LETTERS = "abcd"
#: The first seed; another one gives other patterns.
FIRST_SEED = int(os.environ.get("HEADGATE_PATTERN_SEED", "0"))


@dataclass(frozen=True)
class Condition:
    """A condition: the letter is one of these, and, by ``kind``, something about earlier events of ``step``."""

    letters: str
    kind: str = ""
    step: str = ""
    number: int = 0

    def predicate(self) -> Predicate:
        """Return it for the reference."""

        def holds(event: Event, before: Sequence[tuple[str, Event]]) -> bool:
            _, letter, v = event
            if letter not in self.letters:
                return False
            values = [e[2] for name, e in before if name == self.step]
            match self.kind:
                case "rises":
                    return not values or v > values[-1]
                case "sum":
                    return sum(values) + v < self.number
                case "count":
                    return len(values) >= self.number
                case "first":
                    return bool(values) and v != values[0]
                case _:
                    return True

        return holds

    def expression(self) -> list[pl.Expr | MatchExpression]:
        """Return it for the engine: conditions that must all hold."""
        simple = pl.col("letter").is_in(list(self.letters))
        of = matched(self.step)
        match self.kind:
            case "rises":
                return [simple, (of.count() == 0) | (candidate("v") > of.last("v"))]
            case "sum":
                return [simple, of.sum("v").fill_null(0) + candidate("v") < self.number]
            case "count":
                return [simple, of.count() >= self.number]
            case "first":
                return [simple, candidate("v") != of.first("v")]
            case _:
                return [simple]


@dataclass(frozen=True)
class Case:
    """A pattern for both sides, with events in order of time."""

    items: tuple[Item, ...]
    conditions: dict[str, Condition]
    within_ms: int | None
    skip: str
    skip_step: str
    events: tuple[Event, ...]

    @property
    def pattern(self) -> Pattern:
        """Return the pattern of the engine."""
        pattern = _build(self.items, self.conditions, AfterMatchSkip(SkipKind(self.skip), self.skip_step))
        return pattern.within(Milliseconds(self.within_ms)) if self.within_ms is not None else pattern

    def __str__(self) -> str:
        lines = [f"  {i.kind} {i.name} {self._describe(i)}" for i in self.items]
        events = " ".join(f"{letter}{v}@{ms}" for ms, letter, v in self.events)
        return "\n".join([*lines, f"  within {self.within_ms}, {self.skip} {self.skip_step}", f"  events {events}"])

    def _describe(self, item: Item) -> str:
        if item.group:
            inside = "; ".join(f"{i.kind} {i.name} {self._describe(i)}" for i in item.group)
            return f"({inside}) {item.least}..{item.most} {item.inner}{' optional' * item.optional}"
        until = self.conditions.get(f"{item.name}.until")
        flags = f"{' optional' * item.optional}{' greedy' * item.greedy} gap {item.gap_ms}"
        return f"{self.conditions[item.name]} {item.least}..{item.most} {item.inner}{flags} until {until}"


def seeds(part: int, parts: int, count: int) -> range:
    """Return the seeds of one of ``parts`` parts of ``count`` cases."""
    return range(FIRST_SEED + part, FIRST_SEED + count, parts)


def generate(seed: int, *, most_events: int = 8) -> Case:
    """Return the case of a seed."""
    return _Generator(random.Random(seed)).case(most_events)


def generate_alike(seed: int, count: int) -> list[Case]:
    """Return cases with the same events, whose patterns differ in their conditions only."""
    letters = [random.Random(f"{seed} {number}") for number in range(count)]
    return [_Generator(random.Random(seed), own).case(most_events=8) for own in letters]


class _Generator:
    def __init__(self, rng: random.Random, letters: random.Random | None = None) -> None:
        self.rng = rng
        self.letters = letters or rng
        self.conditions: dict[str, Condition] = {}
        self.names: list[str] = []

    def case(self, most_events: int) -> Case:
        rng = self.rng
        items = self._items(rng.choice([1, 2, 2, 3, 3, 4]), depth=0)
        within = rng.choice([None, None, 4, 8, 15])
        if items[-1].kind == "not_followed_by" and within is None and items[-1].gap_ms is None:
            within = rng.choice([4, 8])
        taking = [name for name in self.names if not name.startswith("n")]
        skip = rng.choice(
            ["no_skip", "no_skip", "skip_to_next", "skip_past_last_event", "skip_to_first", "skip_to_last"]
        )
        step = rng.choice(taking) if skip in ("skip_to_first", "skip_to_last") else ""
        return Case(tuple(items), self.conditions, within, skip, step, self._events(rng.randint(3, most_events)))

    def _events(self, count: int) -> tuple[Event, ...]:
        ms, events = 0, []
        for _ in range(count):
            ms += self.rng.choice([0, 1, 1, 2, 3])
            events.append((ms, self.rng.choice(LETTERS), self.rng.randint(0, 5)))
        return tuple(events)

    def _items(self, count: int, depth: int) -> list[Item]:
        rng = self.rng
        items: list[Item] = []
        for number in range(count):
            kind = "begin" if not number else rng.choice(["next", "followed_by", "followed_by", "followed_by_any"])
            before = items[-1] if items else None
            if before is not None and not (before.optional or before.group or depth) and rng.random() < 0.15:
                items += self._negation(before, last=number == count - 1)
                if number == count - 1:
                    break
            if not depth and rng.random() < 0.15:
                items.append(self._group(kind, before))
            else:
                items.append(self._step(kind, before, depth, head=not number))
        if all(item.optional for item in items):
            items = [_required(items[0]), *items[1:]]
        _repair(items)
        return items

    def _negation(self, before: Item, *, last: bool) -> list[Item]:
        name = self._name("n")
        condition = self.conditions[name] = Condition(self._letters())
        kind = self.rng.choice(["not_next", "not_followed_by"])
        gap = self.rng.choice([None, 3]) if last and kind == "not_followed_by" else None
        return [Item(name, kind, condition.predicate(), gap_ms=gap)]

    def _group(self, kind: str, before: Item | None) -> Item:
        inside = self._items(self.rng.choice([1, 2]), depth=1)
        inside = [_required(inside[0]), *inside[1:]]
        least, most = self.rng.choice([(1, 1), (1, 1), (2, 2), (1, 2), (1, None)])
        optional = self.rng.random() < 0.2 and not (
            before is not None and (before.greedy or before.kind.startswith("n"))
        )
        inner = self.rng.choice(["followed_by", "followed_by", "next", "followed_by_any"])
        if (least, most) == (1, 1):
            inner = "followed_by"
        names = "/".join(i.name for i in inside)
        return Item(names, kind, group=tuple(inside), least=least, most=most, optional=optional, inner=inner)

    def _step(self, kind: str, before: Item | None, depth: int, *, head: bool) -> Item:
        rng, name = self.rng, self._name("s")
        condition = self.conditions[name] = self._condition(name)
        least, most = rng.choice([(1, 1)] * 4 + [(1, None), (1, None), (2, None), (2, 2), (1, 2), (2, 3)])
        repeats = (least, most) != (1, 1)
        inner = rng.choice(["followed_by", "followed_by", "next", "followed_by_any"]) if repeats else "followed_by"
        may_be_optional = not (before is not None and (before.greedy or before.kind.startswith("not")))
        optional = may_be_optional and not (depth and head) and rng.random() < 0.2
        greedy = repeats and not depth and inner != "followed_by_any" and rng.random() < 0.25
        until = None
        if most is None and rng.random() < 0.3:
            stop = self.conditions[f"{name}.until"] = Condition(self._letters())
            until = stop.predicate()
        plain = not repeats and not optional and before is not None and (before.least, before.most) == (1, 1)
        alone = before is not None and not depth and not before.optional and not before.group
        gap = 3 if plain and alone and rng.random() < 0.15 else None
        return Item(name, kind, condition.predicate(), least, most, optional, greedy, inner, until, gap_ms=gap)

    def _condition(self, own: str) -> Condition:
        rng, letters = self.rng, self._letters()
        kind = rng.choice(["", "", "", "", "rises", "sum", "count", "first"])
        if not kind:
            return Condition(letters)
        earlier = [name for name in self.names if name.startswith("s")]
        if kind in ("count", "first"):
            earlier = [name for name in earlier if name != own]
            if not earlier:
                return Condition(letters)
        if self.letters is not rng:
            others = {"rises": "sum", "sum": "rises", "count": "first", "first": "count"}
            kind = self.letters.choice([kind, others[kind]])
        number = self.letters.choice([1, 2]) if kind == "count" else self.letters.randint(4, 9)
        return Condition(letters, kind, self.letters.choice(earlier), number)

    def _letters(self) -> str:
        return "".join(self.letters.sample(LETTERS, self.letters.choice([1, 1, 2, 3])))

    def _name(self, kind: str) -> str:
        self.names.append(f"{kind}{len(self.names)}")
        return self.names[-1]


def _required(item: Item) -> Item:
    return Item(**{**item.__dict__, "optional": False})


def _repair(items: list[Item]) -> None:
    """Leave out what has no declarative meaning: a negation that only optional steps follow."""
    for number, item in enumerate(items):
        rest = items[number + 1 :]
        if item.kind == "not_followed_by" and not rest and items[number - 1].greedy:
            items[number - 1] = Item(**{**items[number - 1].__dict__, "until": None})
        if item.kind.startswith("not") and rest and all(i.optional for i in rest):
            items[number + 1] = _required(rest[0])


def _build(items: Sequence[Item], conditions: dict[str, Condition], skip: AfterMatchSkip | None = None) -> Pattern:
    pattern: Pattern | None = None
    for item in items:
        step = _build(item.group, conditions) if item.group else item.name
        pattern = Pattern.begin(step, skip) if pattern is None else getattr(pattern, item.kind)(step)
        if not item.group:
            for condition in conditions[item.name].expression():
                pattern = pattern.where(condition)
        if item.kind.startswith("not"):
            if item.gap_ms is not None:
                pattern = pattern.within(Milliseconds(item.gap_ms), WithinType.PREVIOUS_AND_CURRENT)
            continue
        if (item.least, item.most) != (1, 1):
            pattern = pattern.times_or_more(item.least) if item.most is None else pattern.times(item.least, item.most)
            if item.inner == Contiguity.STRICT:
                pattern = pattern.consecutive()
            if item.inner == Contiguity.RELAXED_ANY:
                pattern = pattern.allow_combinations()
        if item.greedy:
            pattern = pattern.greedy()
        if item.optional:
            pattern = pattern.optional()
        if item.until is not None:
            (stop,) = conditions[f"{item.name}.until"].expression()
            pattern = pattern.until(stop)
        if item.gap_ms is not None:
            pattern = pattern.within(Milliseconds(item.gap_ms), WithinType.PREVIOUS_AND_CURRENT)
    assert pattern is not None
    return pattern
