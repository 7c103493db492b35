"""Conditions of pattern steps, as trees over *leaves*: conditions that are each evaluated once for an event.

A leaf has a number, which is the number of a bit. A *simple* leaf depends on the event alone: the owner of the rows
evaluates it for a whole column of them. An *iterative* leaf also depends on the partial match. The automaton knows
only bits: a guard is a tree of leaves, and ``alternatives`` turns it into pairs of bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True, slots=True)
class Leaf:
    """The condition of this number holds."""

    number: int


@dataclass(frozen=True, slots=True)
class Negation:
    """The condition does not hold. A condition that is null does not hold, so its negation does."""

    condition: Guard


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All conditions hold; without any, it is true."""

    conditions: tuple[Guard, ...] = ()


@dataclass(frozen=True, slots=True)
class Alternation:
    """At least one condition holds."""

    conditions: tuple[Guard, ...]


Guard = Leaf | Negation | Conjunction | Alternation
TRUE = Conjunction()
#: Bits that must be set, and bits that must not.
Masks = tuple[int, int]


def both(first: Guard, second: Guard) -> Guard:
    """Return the conjunction."""
    parts = [*(first.conditions if isinstance(first, Conjunction) else [first])]
    parts += second.conditions if isinstance(second, Conjunction) else [second]
    return parts[0] if len(parts) == 1 else Conjunction(tuple(parts))


def leaves(guard: Guard) -> Iterable[int]:
    """Yield the numbers of the leaves."""
    match guard:
        case Leaf(number):
            yield number
        case Negation(condition):
            yield from leaves(condition)
        case Conjunction(conditions) | Alternation(conditions):
            for condition in conditions:
                yield from leaves(condition)


def alternatives(guard: Guard) -> tuple[Masks, ...]:
    """Return the guard in disjunctive normal form: it holds if one of the pairs of masks fits."""
    return tuple(dict.fromkeys(_minimal(_disjuncts(guard, wanted=True))))


def holds(masks: Sequence[Masks], bits: int) -> bool:
    """Return whether one of the pairs of masks fits the bits."""
    return any(bits & required == required and not bits & forbidden for required, forbidden in masks)


def _disjuncts(guard: Guard, *, wanted: bool) -> list[Masks]:
    match guard:
        case Leaf(number):
            return [(1 << number, 0) if wanted else (0, 1 << number)]
        case Negation(condition):
            return _disjuncts(condition, wanted=not wanted)
        case Conjunction(conditions) | Alternation(conditions):
            parts = [_disjuncts(condition, wanted=wanted) for condition in conditions]
            if isinstance(guard, Alternation) is wanted:
                return [masks for part in parts for masks in part]
            combined: list[Masks] = [(0, 0)]
            for part in parts:
                pairs = [(a | c, b | d) for (a, b), (c, d) in product(combined, part)]
                combined = list(dict.fromkeys(pair for pair in pairs if not pair[0] & pair[1]))
            return combined


def _minimal(masks: list[Masks]) -> list[Masks]:
    """Leave out alternatives that another one, with fewer bits, implies."""
    return [(a, b) for a, b in masks if not any((c, d) != (a, b) and a & c == c and b & d == d for c, d in masks)]
