"""Many plans as a few tables of whole numbers, so that a batch of events is joined with all rules at once.

Every distinct constant of a term gets a number: an *id* when it is compared for equality, a *rank* when it is a bound.
An event's value is translated once a batch and term; from there on, looking up and checking is arithmetic on arrays
of integers, whatever the types were. Ranks are built so that one number an event decides all bounds of a term:

with the distinct bounds of a term sorted, t0 < t1 < ..., an event's value v has the rank ``2 * (number of t < v)``,
plus one when v is itself a bound; a lower bound tk has the code ``2k`` (``>=``) or ``2k + 1`` (``>``) and holds when
``code < rank``; an upper bound has ``2k`` (``<``) or ``2k + 1`` (``<=``) and holds when ``code >= rank``.

Promises: building is one pass over the entries and a few array operations, so it may be done after every change.
Refuses to know events, rules and Polars.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rulecore.lang.types import Value
from rulecore.leaves import Leaf, LeafKind
from rulecore.plan import Entry, Shape

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]

NO_ID = -1  # a value that no rule names
NULL_ID = -2
NULL_RANK = -1
_DIRECT = 16_384  # a fold of two columns of ids up to this size is a plain array


@dataclass(slots=True)
class Terms:
    """The constants of every term: ``ids`` of those compared for equality, sorted distinct ``bounds``."""

    ids: dict[str, dict[Value, int]] = field(default_factory=lambda: defaultdict(dict))
    lists: dict[str, dict[tuple[Value, ...], int]] = field(default_factory=lambda: defaultdict(dict))
    members: dict[str, Ints] = field(default_factory=dict)
    bounds: dict[str, Numbers] = field(default_factory=dict)
    arrays: dict[str, pa.Array] = field(default_factory=dict)

    def id_of(self, term: str, value: Value) -> int:
        """The number of a constant, given out on first use."""
        ids = self.ids[term]
        return ids.setdefault(value, len(ids))

    def list_of(self, term: str, values: tuple[Value, ...]) -> int:
        """The number of a list of constants."""
        lists = self.lists[term]
        return lists.setdefault(values, len(lists))

    def finish(self) -> None:
        """Lists as one sorted array a term of ``list number * number of ids + id``; all ids are known by now."""
        for term, lists in self.lists.items():
            for values in lists:
                for value in values:
                    self.id_of(term, value)
            ids = self.ids[term]
            pairs = [number * len(ids) + ids[value] for values, number in lists.items() for value in values]
            self.members[term] = np.sort(np.array(pairs, np.int64))

    def array_of(self, term: str, kind: pa.DataType) -> pa.Array:
        """The constants of a term in order of their ids, in Arrow's form; made once."""
        if term not in self.arrays:
            self.arrays[term] = pa.array(list(self.ids[term]), kind)
        return self.arrays[term]

    def codes(self, term: str, kind: LeafKind, bounds: Sequence[Value], strict: Sequence[bool]) -> Ints:
        """Codes of bounds, see the top of the module."""
        known = self.bounds[term]
        place = np.searchsorted(known, np.array(bounds, known.dtype)).astype(np.int64)
        odd = np.array(strict, np.bool_)
        codes: Ints = 2 * place + (odd if kind is LeafKind.LOWER else ~odd)
        return codes


@dataclass(frozen=True, slots=True)
class Fold:
    """One step of turning ids of several columns into one number: ``known[left * width + right]``, or -1.

    ``dense`` holds the result at the combination itself; else ``known`` is sorted and the place is the result.
    """

    term: str
    width: int
    known: Ints
    dense: bool

    def of(self, left: Ints, right: Ints) -> Ints:
        """The combination's number; both inputs are not negative."""
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
    folds: tuple[Fold, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Residual:
    """All entries of one shape. ``constants[i][slot]`` is the number of leaf i of the entry at ``slot``."""

    shape: Shape
    constants: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """``rule``, ``residual`` and ``slot`` are by entry; ``residual`` is -1 where nothing is left to check."""

    terms: Terms
    groups: tuple[Group, ...]
    scans: tuple[tuple[Leaf, int, Ints], ...]  # leaf, its number, its entries
    everything: Ints  # entries that every event is a candidate for
    residuals: tuple[Residual, ...]
    opaque: tuple[str, ...]
    rule: Ints
    residual: Ints
    slot: Ints


def build(plans: Iterable[Sequence[Entry]], kinds: Mapping[str, type[np.int64] | type[np.float64]]) -> Index:
    """The index of these plans, one a rule; ``kinds`` gives the number type of every term that has bounds."""
    rules: list[int] = []
    entries: list[Entry] = []
    for rule, plan in enumerate(plans):
        entries += plan
        rules += [rule] * len(plan)
    terms = Terms()
    _collect_bounds(entries, terms, kinds)
    opaque: dict[str, int] = {}
    grouped: dict[tuple[str, ...], list[int]] = defaultdict(list)
    scans: dict[Leaf, list[int]] = defaultdict(list)
    everything: list[int] = []
    for number, entry in enumerate(entries):
        if entry.scan is not None:
            scans[entry.scan].append(number)
        elif entry.key_terms or entry.bound is not None:
            grouped[entry.key_terms].append(number)
        else:
            everything.append(number)
    groups = tuple(_group(key, numbers, entries, terms) for key, numbers in sorted(grouped.items()))
    residuals, residual, slot = _residuals(entries, terms, opaque)
    scanned = tuple((leaf, _number(leaf, terms, opaque), np.array(n, np.int64)) for leaf, n in scans.items())
    terms.finish()
    return Index(
        terms=terms,
        groups=groups,
        scans=scanned,
        everything=np.array(everything, np.int64),
        residuals=residuals,
        opaque=tuple(opaque),
        rule=np.array(rules, np.int64),
        residual=residual,
        slot=slot,
    )


def _collect_bounds(
    entries: Sequence[Entry], terms: Terms, kinds: Mapping[str, type[np.int64] | type[np.float64]]
) -> None:
    seen: dict[str, list[Value]] = defaultdict(list)
    for entry in entries:
        if entry.bound is not None:
            seen[entry.bound.term].append(entry.bound.constants[0])
        for leaf in entry.leaves:
            if leaf.kind is LeafKind.LOWER or leaf.kind is LeafKind.UPPER:
                seen[leaf.term].append(leaf.constants[0])
    for term, bounds in seen.items():
        if kinds[term] is np.int64:
            terms.bounds[term] = np.unique(np.array(bounds, np.int64))
        else:
            terms.bounds[term] = np.unique(np.array(bounds, np.float64))


def _number(leaf: Leaf, terms: Terms, opaque: dict[str, int]) -> int:
    """What stands for the leaf's constants (a bound's code is worked out for many at once, see ``codes``)."""
    match leaf.kind:
        case LeafKind.EQUAL | LeafKind.DIFFERENT:
            return terms.id_of(leaf.term, leaf.constants[0])
        case LeafKind.MEMBER | LeafKind.NO_MEMBER:
            return terms.list_of(leaf.term, leaf.constants)
        case LeafKind.OPAQUE:
            return opaque.setdefault(leaf.term, len(opaque))
    return 0


def _group(key_terms: tuple[str, ...], numbers: Sequence[int], entries: Sequence[Entry], terms: Terms) -> Group:
    """Number the combinations of values, then file the entries under them, one table for each kind of bound."""
    keys, owners = _keys(key_terms, numbers, entries, terms)
    first, first_keys, folds, keyed = _fold(key_terms, keys, len(owners))
    by_bound: dict[tuple[str, LeafKind] | None, list[int]] = defaultdict(list)
    for place, owner in enumerate(owners):
        bound = entries[owner].bound
        by_bound[None if bound is None else (bound.term, bound.kind)].append(place)
    size = int(keyed.max(initial=0)) + 1
    owner_of = np.array(owners, np.int64)
    tables = tuple(
        _table(bound, keyed[np.array(places)], owner_of[np.array(places)], size, entries, terms)
        for bound, places in by_bound.items()
    )
    return Group(first, first_keys, folds, tables)


def _keys(
    key_terms: tuple[str, ...], numbers: Sequence[int], entries: Sequence[Entry], terms: Terms
) -> tuple[list[Ints], list[int]]:
    """For each term the id in every combination; and the entry that each combination belongs to."""
    owners = [number for number in numbers for _ in entries[number].keys]
    combinations = [combination for number in numbers for combination in entries[number].keys]
    columns = zip(*combinations, strict=True) if key_terms else ()
    ids = [
        np.fromiter((terms.id_of(term, value) for value in column), np.int64, len(owners))
        for term, column in zip(key_terms, columns, strict=True)
    ]
    return ids, owners


def _fold(
    key_terms: tuple[str, ...], keys: list[Ints], count: int
) -> tuple[str | None, Ints | None, tuple[Fold, ...], Ints]:
    """From ids to one dense number a distinct combination. The term with most values comes first: it drops most."""
    if not key_terms:
        return None, None, (), np.zeros(count, np.int64)
    order = sorted(range(len(key_terms)), key=lambda i: -len(np.unique(keys[i])))
    distinct, keyed = np.unique(keys[order[0]], return_inverse=True)
    first_keys = _direct(distinct, int(distinct[-1]) + 1)
    folds = []
    for i in order[1:]:
        width = int(keys[i].max()) + 1
        size = (int(keyed.max()) + 1) * width
        known, inverse = np.unique(keyed * width + keys[i], return_inverse=True)
        dense = size <= _DIRECT
        folds.append(Fold(key_terms[i], width, _direct(known, size) if dense else known, dense))
        keyed = inverse
    return key_terms[order[0]], first_keys, tuple(folds), keyed


def _direct(numbers: Ints, size: int) -> Ints:
    """An array that holds the place of each number at that number, and -1 elsewhere."""
    direct = np.full(size, -1, np.int64)
    direct[numbers] = np.arange(len(numbers))
    return direct


def _table(
    bound: tuple[str, LeafKind] | None,
    keyed: Ints,
    owners: Ints,
    size: int,
    entries: Sequence[Entry],
    terms: Terms,
) -> Table:
    if bound is None:
        order = np.argsort(keyed, kind="stable")
        return Table(_starts(keyed, size), owners[order])
    term, kind = bound
    bounds = [leaf for o in owners.tolist() if (leaf := entries[o].bound) is not None]
    codes = terms.codes(term, kind, [b.constants[0] for b in bounds], [b.strict for b in bounds])
    width = 2 * len(terms.bounds[term]) + 2
    combined = keyed * width + codes
    order = np.argsort(combined, kind="stable")
    return Table(_starts(keyed, size), owners[order], term, kind is LeafKind.LOWER, width, combined[order])


def _starts(keyed: Ints, size: int) -> Ints:
    start = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keyed, minlength=size), out=start[1:])
    return start


def _residuals(
    entries: Sequence[Entry], terms: Terms, opaque: dict[str, int]
) -> tuple[tuple[Residual, ...], Ints, Ints]:
    residual = np.full(len(entries), -1, np.int64)
    slot = np.zeros(len(entries), np.int64)
    by_shape: dict[Shape, tuple[int, list[tuple[Leaf, ...]]]] = {}
    for number, entry in enumerate(entries):
        if entry.shape is not None:
            place, rows = by_shape.setdefault(entry.shape, (len(by_shape), []))
            residual[number] = place
            slot[number] = len(rows)
            rows.append(entry.leaves)
    residuals = tuple(
        Residual(shape, tuple(_column(column, terms, opaque) for column in zip(*rows, strict=True)))
        for shape, (_, rows) in by_shape.items()
    )
    return residuals, residual, slot


def _column(leaves: tuple[Leaf, ...], terms: Terms, opaque: dict[str, int]) -> Ints:
    """One leaf of a shape over all its entries."""
    kind = leaves[0].kind
    if kind in (LeafKind.LOWER, LeafKind.UPPER):
        return terms.codes(leaves[0].term, kind, [x.constants[0] for x in leaves], [x.strict for x in leaves])
    return np.array([_number(leaf, terms, opaque) for leaf in leaves], np.int64)
