"""Builds an index from the entries of all access plans.

It takes one pass over the entries and a few array operations, so it can run after every change of rules. Equal plans in
equal order give an equal index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rulecore.language import Expr
from rulecore.language.types import Value
from rulecore.matching.access_plan import IndexEntry, Shape
from rulecore.matching.index import ConstantPool, Group, Index, Ints, KeyCombination, Residual, Table, grid_cell_name
from rulecore.matching.predicates import Predicate, PredicateKind
from rulecore.matching.text_programs import write_programs
from streamcore.schema import Kind

#: Fewest intervals of one term, with equal key terms, for which a grid pays off despite its lookups on every level.
_GRID_INTERVALS = 32
TEXT_RESIDUAL = -2
_DIRECT = 16_384  # most combinations of a dense ``KeyCombination``


def build_index(plans: Iterable[Sequence[IndexEntry]], expressions: Mapping[str, Expr]) -> Index:
    """Return the index of the plans, one per rule. ``expressions``: that of each term."""
    rules: list[int] = []
    entries: list[IndexEntry] = []
    for rule, plan in enumerate(plans):
        entries += plan
        rules += [rule] * len(plan)
    terms = ConstantPool()
    kinds = {n: np.float64 if e.type.kind is Kind.DOUBLE else np.int64 for n, e in expressions.items()}
    _collect_bounds(entries, terms, kinds)
    opaque: dict[str, int] = {}
    grouped: dict[tuple[str, ...], list[_KeyedEntry]] = defaultdict(list)
    scans: dict[Predicate, list[int]] = defaultdict(list)
    everything: list[int] = []
    for number, entry in enumerate(entries):
        if entry.scan is not None:
            scans[entry.scan].append(number)
        elif not entry.key_terms and entry.bound is None and entry.node is None:
            everything.append(number)
    for key_terms, keyed in _keyed_entries(entries, terms):
        grouped[key_terms].append(keyed)
    groups = tuple(_build_group(key_terms, keyed, terms) for key_terms, keyed in sorted(grouped.items()))
    residuals, residual, residual_row = _build_residuals(entries, terms, opaque)
    texts = write_programs(entries, expressions, lambda leaf: int(_constant_numbers((leaf,), terms, opaque)[0]))
    if texts is not None:
        residual[texts.entries] = TEXT_RESIDUAL
        residual_row[texts.entries] = np.arange(len(texts.entries))
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
        residual_row=residual_row,
        texts=texts,
    )


def _collect_bounds(
    entries: Sequence[IndexEntry], terms: ConstantPool, kinds: Mapping[str, type[np.int64] | type[np.float64]]
) -> None:
    """Store the sorted distinct bounds of each term in ``terms.bounds``."""
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
    """Return the number of a leaf's constant. For bounds, ``ConstantPool.codes`` computes many at once."""
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
    """The number of an entry, the keys under which it is stored, and the bound by which it is sorted there."""

    entry: int
    keys: tuple[tuple[Value, ...], ...]
    bound: Predicate | None


def _keyed_entries(entries: Sequence[IndexEntry], terms: ConstantPool) -> Iterator[tuple[tuple[str, ...], _KeyedEntry]]:
    """Yield the key terms and the keys of every entry that is looked up.

    Entries with an interval are stored by grid cells if there are many intervals of the term, else by one bound.
    """
    interval_counts = Counter((e.key_terms, e.interval[0].term) for e in entries if e.interval is not None)
    for number, entry in enumerate(entries):
        if entry.interval is not None and interval_counts[entry.key_terms, entry.interval[0].term] >= _GRID_INTERVALS:
            name, cells = _cells(entry.interval, terms)
            keys = tuple((*key, cell) for key in entry.keys for cell in cells)
            yield (*entry.key_terms, name), _KeyedEntry(number, keys, None)
        elif entry.key_terms or entry.bound is not None:
            yield entry.key_terms, _KeyedEntry(number, entry.keys, entry.bound)


def _cells(interval: tuple[Predicate, Predicate], terms: ConstantPool) -> tuple[str, tuple[int, ...]]:
    """Return the grid cells of the interval's ranks; any cell for an empty interval, whose residual is never true."""
    low = terms.code(interval[0]) + 1
    high = max(low, terms.code(interval[1]))
    level = 0
    while (high >> level) - (low >> level) > 1:
        level += 1
    return grid_cell_name(interval[0].term, level), tuple({low >> level: None, high >> level: None})


def _build_group(key_terms: tuple[str, ...], keyed_entries: Sequence[_KeyedEntry], terms: ConstantPool) -> Group:
    """Return the group: number the keys, and store the entries in one table per term and side of bounds."""
    owners = [entry for entry in keyed_entries for _ in entry.keys]
    first, first_keys, folds, keyed = _number_keys(key_terms, _ids(key_terms, keyed_entries, terms), len(owners))
    by_bound: dict[tuple[str, PredicateKind] | None, list[int]] = defaultdict(list)
    for index, entry in enumerate(owners):
        by_bound[None if entry.bound is None else (entry.bound.term, entry.bound.kind)].append(index)
    size = int(keyed.max(initial=0)) + 1
    tables = tuple(
        _build_table(keyed[np.array(indexes)], [owners[index] for index in indexes], size, terms)
        for indexes in by_bound.values()
    )
    return Group(first, first_keys, folds, tables)


def _ids(key_terms: tuple[str, ...], keyed_entries: Sequence[_KeyedEntry], terms: ConstantPool) -> list[Ints]:
    """Return for each term its id in every key of the entries."""
    combinations = [combination for entry in keyed_entries for combination in entry.keys]
    columns = zip(*combinations, strict=True) if key_terms else ()
    return [
        np.fromiter((terms.constant_id(term, value) for value in column), np.int64, len(combinations))
        for term, column in zip(key_terms, columns, strict=True)
    ]


def _number_keys(
    key_terms: tuple[str, ...], keys: list[Ints], count: int
) -> tuple[str | None, Ints | None, tuple[KeyCombination, ...], Ints]:
    """Number the distinct keys from 0.

    Return the first term, its ``Group.first_keys``, the steps that combine the other terms, and the number of each key.
    The term with the most values comes first, since it rules out the most events. ``keys``: for each term, its id in
    every key; ``count``: the number of keys.
    """
    if not key_terms:
        return None, None, (), np.zeros(count, np.int64)
    order = sorted(range(len(key_terms)), key=lambda i: -len(np.unique(keys[i])))
    distinct, keyed = np.unique(keys[order[0]], return_inverse=True)
    first_keys = _inverse(distinct, int(distinct[-1]) + 1)
    folds = []
    for i in order[1:]:
        width = int(keys[i].max()) + 1
        size = (int(keyed.max()) + 1) * width
        known, inverse = np.unique(keyed * width + keys[i], return_inverse=True)
        dense = size <= _DIRECT
        folds.append(KeyCombination(key_terms[i], width, _inverse(known, size) if dense else known, dense))
        keyed = inverse
    return key_terms[order[0]], first_keys, tuple(folds), keyed


def _inverse(numbers: Ints, size: int) -> Ints:
    """Return an array whose item n is the index of n in ``numbers``, -1 if it is not there."""
    inverse = np.full(size, -1, np.int64)
    inverse[numbers] = np.arange(len(numbers))
    return inverse


def _build_table(keyed: Ints, keyed_entries: Sequence[_KeyedEntry], size: int, terms: ConstantPool) -> Table:
    """Return a table of entries without bounds, or with bounds of one term and side.

    ``keyed``: the key number of each entry. ``size``: the number of keys.
    """
    owners = np.array([entry.entry for entry in keyed_entries], np.int64)
    bounds = [entry.bound for entry in keyed_entries if entry.bound is not None]
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
    """Return ``Table.start``."""
    start = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keyed, minlength=size), out=start[1:])
    return start


def _build_residuals(
    entries: Sequence[IndexEntry], terms: ConstantPool, opaque: dict[str, int]
) -> tuple[tuple[Residual, ...], Ints, Ints]:
    """Return the residuals, and for each entry the index of its residual and its row there."""
    residual = np.full(len(entries), -1, np.int64)
    residual_row = np.zeros(len(entries), np.int64)
    by_shape: dict[Shape, tuple[int, list[tuple[Predicate, ...]]]] = {}
    for number, entry in enumerate(entries):
        if entry.shape is not None:
            index, rows = by_shape.setdefault(entry.shape, (len(by_shape), []))
            residual[number] = index
            residual_row[number] = len(rows)
            rows.append(entry.leaves)
    residuals = tuple(
        Residual(shape, tuple(_constant_numbers(column, terms, opaque) for column in zip(*rows, strict=True)))
        for shape, (_, rows) in by_shape.items()
    )
    return residuals, residual, residual_row


def _constant_numbers(leaves: tuple[Predicate, ...], terms: ConstantPool, opaque: dict[str, int]) -> Ints:
    """Return the numbers of the constants of one leaf of a shape, for all its entries."""
    kind = leaves[0].kind
    if kind in (PredicateKind.LOWER, PredicateKind.UPPER):
        return terms.codes(leaves[0].term, kind, [x.constants[0] for x in leaves], [x.strict for x in leaves])
    return np.array([_number(leaf, terms, opaque) for leaf in leaves], np.int64)
