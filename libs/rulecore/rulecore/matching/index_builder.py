"""Files the entries of all plans into the tables of an index.

Promises: one pass over the entries and a few array operations, so it may be done after every change; the same plans
in the same order give the same index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rulecore.language.types import Value
from rulecore.matching.access_plan import IndexEntry, Shape
from rulecore.matching.index import ConstantPool, Group, Index, Ints, KeyCombination, Residual, Table, grid_cell_name
from rulecore.matching.predicates import Predicate, PredicateKind

#: From so many intervals of one term under the same key terms on, a grid is worth its look-ups on every level.
_CROWD = 32
_DIRECT = 16_384  # a fold of two columns of ids up to this size is a plain array


def build_index(plans: Iterable[Sequence[IndexEntry]], kinds: Mapping[str, type[np.int64] | type[np.float64]]) -> Index:
    """Return the index of these plans, one a rule; ``kinds`` gives the number type of every term that has bounds."""
    rules: list[int] = []
    entries: list[IndexEntry] = []
    for rule, plan in enumerate(plans):
        entries += plan
        rules += [rule] * len(plan)
    terms = ConstantPool()
    _collect_bounds(entries, terms, kinds)
    opaque: dict[str, int] = {}
    grouped: dict[tuple[str, ...], list[_KeyedEntry]] = defaultdict(list)
    scans: dict[Predicate, list[int]] = defaultdict(list)
    everything: list[int] = []
    for number, entry in enumerate(entries):
        if entry.scan is not None:
            scans[entry.scan].append(number)
        elif not entry.key_terms and entry.bound is None:
            everything.append(number)
    for key_terms, filed in _keyed_entries(entries, terms):
        grouped[key_terms].append(filed)
    groups = tuple(_group(key_terms, filed, terms) for key_terms, filed in sorted(grouped.items()))
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
    entries: Sequence[IndexEntry], terms: ConstantPool, kinds: Mapping[str, type[np.int64] | type[np.float64]]
) -> None:
    seen: dict[str, list[Value]] = defaultdict(list)
    for entry in entries:
        if entry.bound is not None:
            seen[entry.bound.term].append(entry.bound.constants[0])
        for leaf in entry.leaves:
            if leaf.kind is PredicateKind.LOWER or leaf.kind is PredicateKind.UPPER:
                seen[leaf.term].append(leaf.constants[0])
    for term, bounds in seen.items():
        if kinds[term] is np.int64:
            terms.bounds[term] = np.unique(np.array(bounds, np.int64))
        else:
            terms.bounds[term] = np.unique(np.array(bounds, np.float64))


def _number(leaf: Predicate, terms: ConstantPool, opaque: dict[str, int]) -> int:
    """Return the number that stands for the leaf's constants (``codes`` computes the codes of many bounds at once)."""
    match leaf.kind:
        case PredicateKind.EQUAL | PredicateKind.DIFFERENT:
            return terms.constant_id(leaf.term, leaf.constants[0])
        case PredicateKind.MEMBER | PredicateKind.NO_MEMBER:
            return terms.list_id(leaf.term, leaf.constants)
        case PredicateKind.OPAQUE:
            return opaque.setdefault(leaf.term, len(opaque))
    return 0


@dataclass(frozen=True, slots=True)
class _KeyedEntry:
    """An entry with the combinations of values it is filed under, and the bound within them."""

    entry: int
    keys: tuple[tuple[Value, ...], ...]
    bound: Predicate | None


def _keyed_entries(entries: Sequence[IndexEntry], terms: ConstantPool) -> Iterator[tuple[tuple[str, ...], _KeyedEntry]]:
    """Key terms and filing of every entry that is looked up: by cells where intervals crowd, else by one bound."""
    crowds = Counter((e.key_terms, e.interval[0].term) for e in entries if e.interval is not None)
    for number, entry in enumerate(entries):
        if entry.interval is not None and crowds[entry.key_terms, entry.interval[0].term] >= _CROWD:
            name, cells = _cells(entry.interval, terms)
            keys = tuple((*key, cell) for key in entry.keys for cell in cells)
            yield (*entry.key_terms, name), _KeyedEntry(number, keys, None)
        elif entry.key_terms or entry.bound is not None:
            yield entry.key_terms, _KeyedEntry(number, entry.keys, entry.bound)


def _cells(interval: tuple[Predicate, Predicate], terms: ConstantPool) -> tuple[str, tuple[int, ...]]:
    """Return the cells that hold the ranks of the interval; some cell for an empty one, which its residual refuses."""
    low = terms.code(interval[0]) + 1
    high = max(low, terms.code(interval[1]))
    level = 0
    while (high >> level) - (low >> level) > 1:
        level += 1
    return grid_cell_name(interval[0].term, level), tuple({low >> level: None, high >> level: None})


def _group(key_terms: tuple[str, ...], filed: Sequence[_KeyedEntry], terms: ConstantPool) -> Group:
    """Build the group: assign numbers to the combinations of values and file the entries, one table a kind of bound."""
    owners = [one for one in filed for _ in one.keys]
    first, first_keys, folds, keyed = _fold(key_terms, _ids(key_terms, filed, terms), len(owners))
    by_bound: dict[tuple[str, PredicateKind] | None, list[int]] = defaultdict(list)
    for place, one in enumerate(owners):
        by_bound[None if one.bound is None else (one.bound.term, one.bound.kind)].append(place)
    size = int(keyed.max(initial=0)) + 1
    tables = tuple(
        _table(keyed[np.array(places)], [owners[place] for place in places], size, terms)
        for places in by_bound.values()
    )
    return Group(first, first_keys, folds, tables)


def _ids(key_terms: tuple[str, ...], filed: Sequence[_KeyedEntry], terms: ConstantPool) -> list[Ints]:
    """Return for each term the id in every combination."""
    combinations = [combination for one in filed for combination in one.keys]
    columns = zip(*combinations, strict=True) if key_terms else ()
    return [
        np.fromiter((terms.constant_id(term, value) for value in column), np.int64, len(combinations))
        for term, column in zip(key_terms, columns, strict=True)
    ]


def _fold(
    key_terms: tuple[str, ...], keys: list[Ints], count: int
) -> tuple[str | None, Ints | None, tuple[KeyCombination, ...], Ints]:
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
        folds.append(KeyCombination(key_terms[i], width, _direct(known, size) if dense else known, dense))
        keyed = inverse
    return key_terms[order[0]], first_keys, tuple(folds), keyed


def _direct(numbers: Ints, size: int) -> Ints:
    """Return an array that holds the place of each number at that number, and -1 elsewhere."""
    direct = np.full(size, -1, np.int64)
    direct[numbers] = np.arange(len(numbers))
    return direct


def _table(keyed: Ints, filed: Sequence[_KeyedEntry], size: int, terms: ConstantPool) -> Table:
    """Build one table of entries that all have no bound, or all one of the same term and side."""
    owners = np.array([one.entry for one in filed], np.int64)
    bounds = [one.bound for one in filed if one.bound is not None]
    if not bounds:
        order = np.argsort(keyed, kind="stable")
        return Table(_starts(keyed, size), owners[order])
    term, kind = bounds[0].term, bounds[0].kind
    codes = terms.codes(term, kind, [b.constants[0] for b in bounds], [b.strict for b in bounds])
    width = 2 * len(terms.bounds[term]) + 2
    combined = keyed * width + codes
    order = np.argsort(combined, kind="stable")
    return Table(_starts(keyed, size), owners[order], term, kind is PredicateKind.LOWER, width, combined[order])


def _starts(keyed: Ints, size: int) -> Ints:
    start = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keyed, minlength=size), out=start[1:])
    return start


def _residuals(
    entries: Sequence[IndexEntry], terms: ConstantPool, opaque: dict[str, int]
) -> tuple[tuple[Residual, ...], Ints, Ints]:
    residual = np.full(len(entries), -1, np.int64)
    slot = np.zeros(len(entries), np.int64)
    by_shape: dict[Shape, tuple[int, list[tuple[Predicate, ...]]]] = {}
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


def _column(leaves: tuple[Predicate, ...], terms: ConstantPool, opaque: dict[str, int]) -> Ints:
    """Build the column of one leaf of a shape over all its entries."""
    kind = leaves[0].kind
    if kind in (PredicateKind.LOWER, PredicateKind.UPPER):
        return terms.codes(leaves[0].term, kind, [x.constants[0] for x in leaves], [x.strict for x in leaves])
    return np.array([_number(leaf, terms, opaque) for leaf in leaves], np.int64)
