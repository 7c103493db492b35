"""The index of many access plans: a few tables of integers, with which events are matched with all rules at once.

Every distinct constant of a term gets a number: an *id* if it is compared for equality, a *rank* if it is a bound. A
value of an event is encoded once per term. From then on, lookups and checks are arithmetic on integer arrays, whatever
the types of the values. Ranks are such that one number of an event decides all bounds of a term:

with the distinct bounds of a term sorted, t0 < t1 < ..., an event's value v has the rank ``2 * (number of t < v)``,
plus one when v is itself a bound; a lower bound tk has the code ``2k`` (``>=``) or ``2k + 1`` (``>``) and holds when
``code < rank``; an upper bound has ``2k`` (``<``) or ``2k + 1`` (``<=``) and holds when ``code >= rank``.

If many rules have intervals of one term, their entries are stored by grid cells instead. On level k a cell is 2**k
ranks wide; an interval is stored on the lowest level on which it touches at most two cells. A cell is a key like any
other, of the term ``grid_cell_name``.

``rulecore.matching.index_builder`` builds the tables; this module defines them. It knows neither events nor rules nor
Polars.
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
from rulecore.matching.predicates import Predicate, PredicateKind, TextLiteral

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

NO_ID = -1  # the id of a value that no rule names
NULL_ID = -2
NULL_RANK = -1


def grid_cell_name(term: str, level: int) -> str:
    """Return the name of the term whose values are a term's cells on a level. No other term has such a name."""
    return f"{term}#{level}"


def parse_grid_cell_name(name: str) -> tuple[str, int] | None:
    """Return the term and level of a name made by ``grid_cell_name``, None for other terms."""
    term, mark, level = name.rpartition("#")
    return (term, int(level)) if mark else None


@dataclass(slots=True)
class ConstantPool:
    """The constants of all rules, by term.

    ``ids``: the ids of constants compared for equality. ``lists``: the numbers of lists of constants. ``members``: the
    packed lists (see ``finish``). ``bounds``: the sorted distinct bounds. ``arrays``: cached Arrow arrays of constants.
    """

    ids: dict[str, dict[Value, int]] = field(default_factory=lambda: defaultdict(dict))
    lists: dict[str, dict[tuple[Value, ...], int]] = field(default_factory=lambda: defaultdict(dict))
    members: dict[str, Ints] = field(default_factory=dict)
    bounds: dict[str, Numbers] = field(default_factory=dict)
    arrays: dict[str, pa.Array] = field(default_factory=dict)

    def constant_id(self, term: str, value: Value) -> int:
        """Return the id of a constant, assigned on first use; a grid cell is its own id."""
        if isinstance(value, int) and parse_grid_cell_name(term) is not None:
            return value
        ids = self.ids[term]
        return ids.setdefault(value, len(ids))

    def list_id(self, term: str, values: tuple[Value, ...]) -> int:
        """Return the number of a list of constants, assigned on first use."""
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
        """Return the constants of a term in the order of their ids, as a cached Arrow array."""
        if term not in self.arrays:
            self.arrays[term] = pa.array(list(self.ids[term]), kind)
        return self.arrays[term]

    def code(self, bound: Predicate) -> int:
        """Return the code of a bound (see the module docstring)."""
        return int(self.codes(bound.term, bound.kind, bound.constants, [bound.strict])[0])

    def codes(self, term: str, kind: PredicateKind, bounds: Sequence[Value], strict: Sequence[bool]) -> Ints:
        """Return the codes of bounds of one term and side (see the module docstring)."""
        known = self.bounds[term]
        index = np.searchsorted(known, np.array(bounds, known.dtype)).astype(np.int64)
        odd = np.array(strict, np.bool_)
        codes: Ints = 2 * index + (odd if kind is PredicateKind.LOWER else ~odd)
        return codes


@dataclass(frozen=True, slots=True)
class KeyCombination:
    """One step in combining the ids of several terms into the number of a key.

    A pair of numbers is combined into ``left * width + right``. If ``dense``, its result is ``known[combined]``;
    otherwise ``known`` is sorted and the result is the index of ``combined`` in it. -1: no entry has this combination.
    """

    term: str
    width: int
    known: Ints
    dense: bool

    def of(self, left: Ints, right: Ints) -> Ints:
        """Return the result for each pair; both inputs must not be negative."""
        combined = left * self.width + right
        if self.dense:
            dense: Ints = self.known[combined]
            return dense
        index = np.searchsorted(self.known, combined)
        np.minimum(index, len(self.known) - 1, out=index)
        return np.where(self.known[index] == combined, index, -1)


@dataclass(frozen=True, slots=True)
class Table:
    """Entries by key: those of key k are ``entries[start[k]:start[k + 1]]``.

    If they have bounds, ``bound`` is their term and ``lower`` their side. The entries of a key are then sorted by the
    code of the bound, and ``codes`` holds ``k * width + code`` of each.
    """

    start: Ints
    entries: Ints
    bound: str | None = None
    lower: bool = True
    width: int = 0
    codes: Ints | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The tables of all entries with equal key terms, and how the ids of an event become the number of a key."""

    first: str | None
    first_keys: Ints | None  # by id of the first term: the number of the key so far, -1: none
    folds: tuple[KeyCombination, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Residual:
    """The residuals of one shape, one row each. ``constants[i][row]``: the number of leaf i's constant in a row."""

    shape: Shape
    constants: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class TextConditions:
    """The conditions of entries on texts, as programs (``rulecore.matching.text_index`` runs them).

    ``entries``: the entry of each. ``program``: rows of an operation and two numbers; ``program_at``: where that of
    each condition starts, and the end. ``literals``: the numbered tests, each with its term; ``lists``: numbers of
    tests, to which the operations refer. ``witnesses``: for each condition, the tests of which one must be true, None
    if it is found by values. ``outside``: the leaves that other parts of the index decide, with the number of the
    constant.
    ``missing``: the terms of which programs ask whether they are NULL.
    """

    entries: Ints
    program: tuple[tuple[int, int, int], ...]
    program_at: tuple[int, ...]
    literals: tuple[tuple[str, TextLiteral], ...]
    lists: tuple[int, ...]
    witnesses: tuple[tuple[int, ...] | None, ...]
    outside: tuple[tuple[Predicate, int], ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The index. ``rule``, ``residual`` and ``residual_row`` hold one number per entry.

    ``residual``: the index in ``residuals``, -1 if nothing is left to check, -2 if ``texts`` checks it;
    ``residual_row``: the row there, or the number of the condition in ``texts``. ``opaque``: the names of the opaque
    conditions, by number. ``texts``: the conditions on texts, None without any.
    """

    terms: ConstantPool
    groups: tuple[Group, ...]
    scans: tuple[tuple[Predicate, int, Ints], ...]  # a leaf, the number of its constant, its entries
    everything: Ints  # entries for which every event is a candidate
    residuals: tuple[Residual, ...]
    opaque: tuple[str, ...]
    rule: Ints
    residual: Ints
    residual_row: Ints
    texts: TextConditions | None = None
