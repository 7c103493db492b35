"""Matches a frame of events (or of windows) with the conditions of many rules at once.

A frame goes through four steps: encode the values of the columns that rules name as numbers (``EncodedBatch``), look up
candidates in the tables of the index, check the residual condition of each candidate shape by shape, and sort. The cost
grows with the rows, the tables and the candidates, not with the number of rules.

The result is that of evaluating every rule on every row, in order of (row, rule). A rule whose evaluation raises is
reported and has no matches in this frame; other rules are not affected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.language import Expr
from rulecore.matching.access_plan import AccessPath, AccessPlan, Shape
from rulecore.matching.encoded_batch import CompiledTerms, EncodedBatch
from rulecore.matching.index import NULL_ID, NULL_RANK, Group, Index, Ints, Residual, Table
from rulecore.matching.index_builder import build_index
from rulecore.matching.predicates import PredicateKind
from streamcore.columnar.grouping import sorted_distinct
from streamcore.schema import Kind

Bools = npt.NDArray[np.bool_]
_CHUNK_PAIRS = 2_000_000  # most candidates in memory at once


@dataclass(frozen=True, slots=True)
class EventMatches:
    """Pairs of an event and a rule that it matches, in order of (row, rule).

    ``row``: the row in the frame. ``rule``: the index in ``EventMatcher.rules``. ``failed``: index and reason of each
    rule whose evaluation raised; these rules have no pairs. ``candidates``: for each rule, the number of events that
    the index passed to it, which is the rule's cost.
    """

    row: npt.NDArray[np.uint32]
    rule: npt.NDArray[np.uint32]
    failed: tuple[tuple[int, str], ...] = ()
    candidates: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class PlannedRule(Protocol):
    """A rule with a condition to match: ``where`` of an event rule, or ``having`` of a window rule."""

    @property
    def plan(self) -> AccessPlan | None:
        """The access plan of the condition."""
        ...


R = TypeVar("R", bound=PlannedRule)


class EventMatcher(Generic[R]):
    """The index of some rules. Immutable."""

    def __init__(self, rules: Sequence[R]) -> None:
        """Build the index of ``rules``. Raise ``ValueError`` if a rule has no plan."""
        self.rules = tuple(rules)
        plans = [rule.plan for rule in self.rules if rule.plan is not None]
        if len(plans) != len(self.rules):
            raise ValueError("a rule without an access plan cannot be matched")
        terms: dict[str, Expr] = {}
        for plan in plans:
            terms.update(plan.terms)
        self._expressions = CompiledTerms(terms)
        numbers = {n: np.float64 if e.type.kind is Kind.DOUBLE else np.int64 for n, e in terms.items()}
        self._index = build_index([plan.entries for plan in plans], numbers)

    def access_paths(self) -> Mapping[AccessPath, int]:
        """Return how many entries are found by which path."""
        found = [entry.access for rule in self.rules if rule.plan is not None for entry in rule.plan.entries]
        return {access: found.count(access) for access in AccessPath}

    def match(self, events: pl.DataFrame) -> EventMatches:
        """Match a batch, a frame of ``StreamSchema.arrow`` (more columns do no harm)."""
        if not events.height or not self.rules:
            return EventMatches(np.zeros(0, np.uint32), np.zeros(0, np.uint32))
        batch = EncodedBatch(events, self._expressions, self._index)
        run = _BatchMatch(self._index, batch, np.zeros(len(self.rules), np.int64))
        rows, rules = run.pairs()
        failed = self._failed_rules(batch.broken) if batch.broken else {}
        if failed:
            kept = ~np.isin(rules, list(failed))
            rows, rules = rows[kept], rules[kept]
        # A rule may be found through several of its entries.
        pairs = sorted_distinct(rows * len(self.rules) + rules)
        return EventMatches(
            (pairs // len(self.rules)).astype(np.uint32),
            (pairs % len(self.rules)).astype(np.uint32),
            tuple(failed.items()),
            run.cost,
        )

    def _failed_rules(self, broken: Mapping[str, str]) -> Mapping[int, str]:
        """Return every rule that uses a broken term, whether or not it was this rule that asked for it."""
        return {
            number: next(broken[name] for name in rule.plan.terms if name in broken)
            for number, rule in enumerate(self.rules)
            if rule.plan is not None and not broken.keys().isdisjoint(rule.plan.terms)
        }


@dataclass(frozen=True, slots=True)
class _BatchMatch:
    """One batch against one index. ``cost``: candidates by rule, counted on the way."""

    index: Index
    batch: EncodedBatch
    cost: npt.NDArray[np.int64]

    def pairs(self) -> tuple[Ints, Ints]:
        """Return the matching rows and rules, in no order and with duplicates."""
        pairs = [pair for rows, entries in self.candidates() for pair in self.check_residuals(rows, entries)]
        if not pairs:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate([r for r, _ in pairs]), self.index.rule[np.concatenate([e for _, e in pairs])]

    def candidates(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield the candidates: pairs of a row and an entry that may match, at most ``_CHUNK_PAIRS`` at a time."""
        for group in self.index.groups:
            yield from self.look_up(group)
        everywhere = np.arange(self.batch.height)
        self.batch.prepare([number for leaf, number, _ in self.index.scans if leaf.kind is PredicateKind.OPAQUE])
        for leaf, number, entries in self.index.scans:
            true = self.leaf(leaf.kind, leaf.term, everywhere, np.full(self.batch.height, number, np.int64))
            yield from _product(everywhere[true], entries)
        yield from _product(everywhere, self.index.everything)

    def look_up(self, group: Group) -> Iterator[tuple[Ints, Ints]]:
        """Yield the candidates among the entries of a group."""
        rows, keys = self.keys(group)
        if not len(rows):
            return
        for table in group.tables:
            yield from self.matching_entries(table, rows, keys)

    def keys(self, group: Group) -> tuple[Ints, Ints]:
        """Return the rows whose values are a key of the group, and the number of that key."""
        if group.first is None or group.first_keys is None:
            return np.arange(self.batch.height), np.zeros(self.batch.height, np.int64)
        ids = self.batch.ids(group.first)
        rows = np.flatnonzero((ids >= 0) & (ids < len(group.first_keys)))
        keys = group.first_keys[ids[rows]]
        rows, keys = _mask(keys >= 0, rows, keys)
        for fold in group.folds:
            ids = self.batch.ids(fold.term)[rows]
            usable = (ids >= 0) & (ids < fold.width)
            rows, keys = _mask(usable, rows, keys)
            keys = fold.of(keys, ids[usable])
            rows, keys = _mask(keys >= 0, rows, keys)
        return rows, keys

    def matching_entries(self, table: Table, rows: Ints, keys: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the candidates in a table: entries under each row's key whose bound the row satisfies."""
        low, high = table.start[keys], table.start[keys + 1]
        if table.bound is not None and table.codes is not None:
            ranks = self.batch.ranks(table.bound)[rows]
            usable = (ranks != NULL_RANK) & (high > low)
            rows, keys, low, high = rows[usable], keys[usable], low[usable], high[usable]
            limit = np.searchsorted(table.codes, keys * table.width + ranks[usable])
            low, high = (low, limit) if table.lower else (limit, high)
        nonempty = high > low
        yield from _expand(rows[nonempty], low[nonempty], high[nonempty], table.entries)

    def check_residuals(self, rows: Ints, entries: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the candidates whose residual condition is true, and add them all to the cost of their rules."""
        self.cost[:] += np.bincount(self.index.rule[entries], minlength=len(self.cost))
        kinds = self.index.residual[entries]
        order = np.argsort(kinds, kind="stable")
        rows, entries, kinds = rows[order], entries[order], kinds[order]
        edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for start, end in pairwise(edges):
            shape_rows, shape_entries = rows[start:end], entries[start:end]
            if end > start and kinds[start] >= 0:
                true = self.residual(self.index.residuals[int(kinds[start])], shape_rows, shape_entries)
                shape_rows, shape_entries = shape_rows[true], shape_entries[true]
            yield shape_rows, shape_entries

    def residual(self, residual: Residual, rows: Ints, entries: Ints) -> Bools:
        """Return whether the residual condition of each candidate is true."""
        return self.holds(residual.shape, iter(residual.constants), rows, self.index.residual_row[entries])

    def holds(self, shape: Shape, constants: Iterator[Ints], rows: Ints, residual_rows: Ints) -> Bools:
        """Return whether a residual of this shape is true for each candidate.

        ``constants``: for each leaf, in the order of the shape, its constants by residual row. A part is evaluated only
        on the candidates that the parts before it have not decided.
        """
        every = shape[0]
        if not isinstance(every, bool):
            return self.leaf(PredicateKind(str(every)), str(shape[1]), rows, next(constants)[residual_rows])
        result = np.full(len(rows), every)
        undecided = np.arange(len(rows))
        for part in shape[1:]:
            assert isinstance(part, tuple)
            true = self.holds(part, constants, rows[undecided], residual_rows[undecided])
            result[undecided] = true
            undecided = undecided[true == every]
        return result

    def leaf(self, kind: PredicateKind, term: str, rows: Ints, numbers: Ints) -> Bools:
        """Return whether a leaf is true for each row. ``numbers``: the number of its constant, for each row."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        return (
            self.batch.opaque(rows, numbers)
            if kind is PredicateKind.OPAQUE
            else self.evaluate_leaf(kind, term, rows, numbers)
        )

    def evaluate_leaf(self, kind: PredicateKind, term: str, rows: Ints, numbers: Ints) -> Bools:
        """Return whether a leaf that is not opaque is true for each row; of NULL, only ``is null`` is true."""
        if kind in (PredicateKind.NULL, PredicateKind.VALUE):
            null: Bools = self.batch.nulls(term)[rows] == (kind is PredicateKind.NULL)
            return null
        if kind in (PredicateKind.LOWER, PredicateKind.UPPER):
            ranks = self.batch.ranks(term)[rows]
            beyond: Bools = (ranks != NULL_RANK) & ((numbers < ranks) == (kind is PredicateKind.LOWER))
            return beyond
        ids = self.batch.ids(term)[rows]
        listed = kind in (PredicateKind.MEMBER, PredicateKind.NO_MEMBER)
        equal = self.batch.member(term, ids, numbers) if listed else ids == numbers
        wanted = kind in (PredicateKind.MEMBER, PredicateKind.EQUAL)
        true: Bools = (ids != NULL_ID) & (equal == wanted)
        return true


def _mask(mask: Bools, rows: Ints, keys: Ints) -> tuple[Ints, Ints]:
    return (rows, keys) if mask.all() else (rows[mask], keys[mask])


def _expand(rows: Ints, low: Ints, high: Ints, entries: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of each row with its ``entries[low:high]``, at most ``_CHUNK_PAIRS`` at a time (or one row)."""
    counts = high - low
    ends = np.cumsum(counts)
    start = 0
    while start < len(rows):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + _CHUNK_PAIRS, side="right")))
        part = counts[start:stop]
        first = np.repeat(low[start:stop] - (ends[start:stop] - part - done), part)
        yield np.repeat(rows[start:stop], part), entries[first + np.arange(len(first))]
        start = stop


def _product(rows: Ints, entries: Ints) -> Iterator[tuple[Ints, Ints]]:
    if len(entries):
        yield from _expand(rows, np.zeros(len(rows), np.int64), np.full(len(rows), len(entries)), entries)
