"""Which events match which rules per event: a batch of events joined with all rules of a stream.

A batch goes through four steps: translate the values of the columns that rules name into numbers (``EncodedBatch``),
look up candidates in the tables of the index, check the rest of each candidate's condition shape by shape, and sort.
The cost of a batch follows the number of its rows, of distinct tables and of candidates, not the number of rules.

Promises: the result is that of evaluating every rule on every event, in order of (row, rule), whatever path was taken;
a rule whose evaluation raises is reported and gives no matches in this batch, and all others are not affected.
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
from streamcore.schema import Kind

Bools = npt.NDArray[np.bool_]
_CHUNK_PAIRS = 2_000_000  # candidates that are held at once


@dataclass(frozen=True, slots=True)
class EventMatches:
    """Pairs of an event and a rule that it matches, in order of (row, rule).

    ``row`` is uint32 and counts the rows of the batch; ``rule`` is uint32 and counts ``EventMatcher.rules``.
    ``failed`` holds (rule, reason) of rules whose evaluation raised: they have no pairs here. ``candidates``: by rule,
    how many events the index let through to it, which is the rule's cost.
    """

    row: npt.NDArray[np.uint32]
    rule: npt.NDArray[np.uint32]
    failed: tuple[tuple[int, str], ...] = ()
    candidates: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class PlannedRule(Protocol):
    """A rule that can be matched: a rule per event, or a windowed rule's ``having`` as one over rows of windows."""

    @property
    def plan(self) -> AccessPlan | None:
        """How its condition is looked up."""
        ...


R = TypeVar("R", bound=PlannedRule)


class EventMatcher(Generic[R]):
    """The rules per event of one stream, ready to be matched. Immutable."""

    def __init__(self, rules: Sequence[R]) -> None:
        """``rules`` all have a plan; their order is the order of ``EventMatches.rule``."""
        self.rules = tuple(rules)
        plans = [rule.plan for rule in self.rules if rule.plan is not None]
        if len(plans) != len(self.rules):
            raise ValueError("a windowed rule has no place in a matcher")
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
        pairs = np.unique(rows * len(self.rules) + rules)
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
        """Return rows and rules that match, in no order, some of them twice."""
        found = [pair for rows, entries in self.candidates() for pair in self.check_residuals(rows, entries)]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate([r for r, _ in found]), self.index.rule[np.concatenate([e for _, e in found])]

    def candidates(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs of a row and an entry that may match, some thousands at a time."""
        for group in self.index.groups:
            yield from self.look_up(group)
        everywhere = np.arange(self.batch.height)
        self.batch.prepare([number for leaf, number, _ in self.index.scans if leaf.kind is PredicateKind.OPAQUE])
        for leaf, number, entries in self.index.scans:
            true = self.leaf(leaf.kind, leaf.term, everywhere, np.full(self.batch.height, number, np.int64))
            yield from _product(everywhere[true], entries)
        yield from _product(everywhere, self.index.everything)

    def look_up(self, group: Group) -> Iterator[tuple[Ints, Ints]]:
        rows, keys = self.keys(group)
        if not len(rows):
            return
        for table in group.tables:
            yield from self.matching_entries(table, rows, keys)

    def keys(self, group: Group) -> tuple[Ints, Ints]:
        """Rows whose values are a combination that rules name, and its number."""
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
        low, high = table.start[keys], table.start[keys + 1]
        if table.bound is not None and table.codes is not None:
            ranks = self.batch.ranks(table.bound)[rows]
            used = (ranks != NULL_RANK) & (high > low)
            rows, keys, low, high = rows[used], keys[used], low[used], high[used]
            place = np.searchsorted(table.codes, keys * table.width + ranks[used])
            low, high = (low, place) if table.lower else (place, high)
        some = high > low
        yield from _expand(rows[some], low[some], high[some], table.entries)

    def check_residuals(self, rows: Ints, entries: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Yield the candidate pairs whose residual holds."""
        self.cost[:] += np.bincount(self.index.rule[entries], minlength=len(self.cost))
        kinds = self.index.residual[entries]
        order = np.argsort(kinds, kind="stable")
        rows, entries, kinds = rows[order], entries[order], kinds[order]
        edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        for start, end in pairwise(edges):
            some, of = rows[start:end], entries[start:end]
            if end > start and kinds[start] >= 0:
                holds = self.residual(self.index.residuals[int(kinds[start])], some, of)
                some, of = some[holds], of[holds]
            yield some, of

    def residual(self, residual: Residual, rows: Ints, entries: Ints) -> Bools:
        return self.holds(residual.shape, iter(residual.constants), rows, self.index.slot[entries])

    def holds(self, shape: Shape, constants: Iterator[Ints], rows: Ints, slots: Ints) -> Bools:
        """Return whether the tree is true for each pair; leaves take their constants in order of the shape.

        A part sees only the pairs that the parts before it have not decided.
        """
        every = shape[0]
        if not isinstance(every, bool):
            return self.leaf(PredicateKind(str(every)), str(shape[1]), rows, next(constants)[slots])
        result = np.full(len(rows), every)
        undecided = np.arange(len(rows))
        for part in shape[1:]:
            assert isinstance(part, tuple)
            true = self.holds(part, constants, rows[undecided], slots[undecided])
            result[undecided] = true
            undecided = undecided[true == every]
        return result

    def leaf(self, kind: PredicateKind, term: str, rows: Ints, numbers: Ints) -> Bools:
        """Return whether the leaf is true for each pair; ``numbers`` stand for its constants."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        return (
            self.batch.opaque(rows, numbers)
            if kind is PredicateKind.OPAQUE
            else self.evaluate_leaf(kind, term, rows, numbers)
        )

    def evaluate_leaf(self, kind: PredicateKind, term: str, rows: Ints, numbers: Ints) -> Bools:
        """Evaluate a leaf for these rows; with NULL, any leaf but ``is null`` is not TRUE."""
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
        found: Bools = (ids != NULL_ID) & (equal == wanted)
        return found


def _mask(mask: Bools, rows: Ints, keys: Ints) -> tuple[Ints, Ints]:
    return (rows, keys) if mask.all() else (rows[mask], keys[mask])


def _expand(rows: Ints, low: Ints, high: Ints, entries: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield every row with its entries ``low`` to ``high``, in pieces of at most ``_CHUNK_PAIRS`` (or one row)."""
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
