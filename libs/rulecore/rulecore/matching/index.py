"""Many plans as a few tables of whole numbers, so that a batch of events is joined with all rules at once.

Every distinct constant of a term gets a number: an *id* when it is compared for equality, a *rank* when it is a bound.
An event's value is translated once a batch and term; from there on, looking up and checking is arithmetic on arrays
of integers, whatever the types were. Ranks are built so that one number an event decides all bounds of a term:

with the distinct bounds of a term sorted, t0 < t1 < ..., an event's value v has the rank ``2 * (number of t < v)``,
plus one when v is itself a bound; a lower bound tk has the code ``2k`` (``>=``) or ``2k + 1`` (``>``) and holds when
``code < rank``; an upper bound has ``2k`` (``<``) or ``2k + 1`` (``<=``) and holds when ``code >= rank``.

Where many rules ask for intervals of one term, they are filed by the cells of a grid instead, of a width that fits the
interval: on level k a cell is 2**k ranks wide, and an interval is filed on the lowest level where it touches two cells
at most. A cell is a key like any other, by the name of ``grid_cell_name``.

``rulecore.matching.index_builder`` builds the tables; this module defines them. Refuses to know events, rules
and Polars.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rulecore.language.types import Value
from rulecore.matching.access_plan import Shape
from rulecore.matching.predicates import Predicate, PredicateKind

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

NO_ID = -1  # a value that no rule names
NULL_ID = -2
NULL_RANK = -1


def grid_cell_name(term: str, level: int) -> str:
    """Return the name of a term's cells on a level; no column and no expression is called so."""
    return f"{term}#{level}"


def parse_grid_cell_name(name: str) -> tuple[str, int] | None:
    """Return term and level of a name that ``grid_cell_name`` gave, None for other terms."""
    term, mark, level = name.rpartition("#")
    return (term, int(level)) if mark else None


@dataclass(slots=True)
class ConstantPool:
    """The constants of every term: ``ids`` of those compared for equality, sorted distinct ``bounds``."""

    ids: dict[str, dict[Value, int]] = field(default_factory=lambda: defaultdict(dict))
    lists: dict[str, dict[tuple[Value, ...], int]] = field(default_factory=lambda: defaultdict(dict))
    members: dict[str, Ints] = field(default_factory=dict)
    bounds: dict[str, Numbers] = field(default_factory=dict)
    arrays: dict[str, pa.Array] = field(default_factory=dict)

    def constant_id(self, term: str, value: Value) -> int:
        """Return the number of a constant, given out on first use; a cell is its own number."""
        if isinstance(value, int) and parse_grid_cell_name(term) is not None:
            return value
        ids = self.ids[term]
        return ids.setdefault(value, len(ids))

    def list_id(self, term: str, values: tuple[Value, ...]) -> int:
        """Return the number of a list of constants."""
        lists = self.lists[term]
        return lists.setdefault(values, len(lists))

    def finish(self) -> None:
        """Pack lists into one sorted array per term of ``list number * number of ids + id``, once all ids are known."""
        for term, lists in self.lists.items():
            for values in lists:
                for value in values:
                    self.constant_id(term, value)
            ids = self.ids[term]
            pairs = [number * len(ids) + ids[value] for values, number in lists.items() for value in values]
            self.members[term] = np.sort(np.array(pairs, np.int64))

    def constants_array(self, term: str, kind: pa.DataType) -> pa.Array:
        """Return the constants of a term in order of their ids, in Arrow's form; made once."""
        if term not in self.arrays:
            self.arrays[term] = pa.array(list(self.ids[term]), kind)
        return self.arrays[term]

    def code(self, bound: Predicate) -> int:
        """Return the code of one bound, see the top of the module."""
        return int(self.codes(bound.term, bound.kind, bound.constants, [bound.strict])[0])

    def codes(self, term: str, kind: PredicateKind, bounds: Sequence[Value], strict: Sequence[bool]) -> Ints:
        """Return the codes of bounds, see the top of the module."""
        known = self.bounds[term]
        place = np.searchsorted(known, np.array(bounds, known.dtype)).astype(np.int64)
        odd = np.array(strict, np.bool_)
        codes: Ints = 2 * place + (odd if kind is PredicateKind.LOWER else ~odd)
        return codes


@dataclass(frozen=True, slots=True)
class KeyCombination:
    """One step of turning ids of several columns into one number: ``known[left * width + right]``, or -1.

    ``dense`` holds the result at the combination itself; else ``known`` is sorted and the place is the result.
    """

    term: str
    width: int
    known: Ints
    dense: bool

    def of(self, left: Ints, right: Ints) -> Ints:
        """Return the combination's number; both inputs are not negative."""
        combined = left * self.width + right
        if self.dense:
            dense: Ints = self.known[combined]
            return dense
        place = np.searchsorted(self.known, combined)
        np.minimum(place, len(self.known) - 1, out=place)
        return np.where(self.known[place] == combined, place, -1)


@dataclass(frozen=True, slots=True)
class Table:
    """Entries of one access: under key k those from ``start[k]`` to ``start[k + 1]`` of ``entries``.

    With a bound they are sorted by its code within each key, and ``codes`` holds ``k * width + code``.
    """

    start: Ints
    entries: Ints
    bound: str | None = None
    lower: bool = True
    width: int = 0
    codes: Ints | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """All tables whose entries are filed under the same terms, and the way from ids to the key."""

    first: str | None
    first_keys: Ints | None  # id of the first term -> key so far, -1 for none
    folds: tuple[KeyCombination, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Residual:
    """All entries of one shape. ``constants[i][slot]`` is the number of leaf i of the entry at ``slot``."""

    shape: Shape
    constants: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """``rule``, ``residual`` and ``slot`` are by entry; ``residual`` is -1 where nothing is left to check."""

    terms: ConstantPool
    groups: tuple[Group, ...]
    scans: tuple[tuple[Predicate, int, Ints], ...]  # leaf, its number, its entries
    everything: Ints  # entries that every event is a candidate for
    residuals: tuple[Residual, ...]
    opaque: tuple[str, ...]
    rule: Ints
    residual: Ints
    slot: Ints
