"""Finds the entries with conditions on texts whose condition is true, for all rows of a batch.

One automaton for each term finds all literals; then only the conditions are run of which a literal was found, or that
the values of a row ask for (``streamcore.decode.walk.literals``). Importing this module loads the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rulecore import language as lang
from rulecore.language import Expr
from rulecore.matching.encoded_batch import EncodedBatch
from rulecore.matching.index import Ints, TextConditions
from rulecore.matching.predicates import PredicateKind
from rulecore.matching.text_programs import MAX_DEPTH, number_terms
from streamcore.decode.walk.literals import automaton, conditions
from streamcore.decode.walk.literals.automaton import Hits, LiteralAutomaton, LiteralTest

Bools = npt.NDArray[np.bool_]
#: Decides a leaf for some rows: its kind, its term, the rows, and the number of its constant for each row.
Decide = Callable[[PredicateKind, str, Ints, Ints], Bools]


class TextIndex:
    """The automata and the programs of some conditions. Immutable."""

    def __init__(self, texts: TextConditions, terms: Callable[[str], Expr]) -> None:
        """Build the automata. ``terms``: the expression of a term."""
        self._texts = texts
        self._automata: dict[str, tuple[str | None, LiteralAutomaton]] = {}
        for term, literals in number_terms(texts.literals).items():
            column = _folded_column(terms(term))
            tests = [LiteralTest(n, one.place, one.text.encode()) for n, one in literals]
            if column is not None or _is_lower(terms(term)):  # a lower case has no capital letters
                tests = [test for test in tests if test.literal == test.literal.lower()]
            if tests:
                self._automata[term] = column, LiteralAutomaton(tests, fold=column is not None)
        self._program = np.array(texts.program, np.int32).reshape(-1, 3)
        self._program_at = np.array(texts.program_at, np.int32)
        self._lists = np.array([*texts.lists, 0], np.int32)
        by_test: list[list[int]] = [[] for _ in texts.literals]
        for condition, witness in enumerate(texts.witnesses):
            for test in witness or ():
                by_test[test].append(condition)
        self._witness_at = np.concatenate([[0], np.cumsum([len(one) for one in by_test])]).astype(np.int32)
        self._witness_of = np.array([c for one in by_test for c in one], np.int32)

    @property
    def size(self) -> int:
        """The bytes of the automata."""
        return sum(one.size for _, one in self._automata.values())

    def true_entries(
        self, batch: EncodedBatch, asked_rows: Ints, asked: Ints, decide: Decide, cost: Ints
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield the rows and entries of conditions that are true.

        ``asked``: conditions to try on the rows ``asked_rows`` beside those with a witness. ``cost``: by entry; each
        run of a condition is added.
        """
        order = np.argsort(asked_rows, kind="stable")
        asked_rows, numbers = asked_rows[order], asked[order].astype(np.int32)
        counted = np.zeros(len(self._texts.entries), np.int64)
        for first in range(0, batch.height, automaton.ROWS):
            rows = min(automaton.ROWS, batch.height - first)
            bounds = np.searchsorted(asked_rows, np.arange(first, first + rows + 1))
            part = numbers[bounds[0] : bounds[-1]]
            yield from self._slice(batch, first, rows, bounds - bounds[0], part, decide, counted)
        cost[self._texts.entries] += counted

    def _slice(
        self,
        batch: EncodedBatch,
        first: int,
        rows: int,
        asked_at: Ints,
        asked: npt.NDArray[np.int32],
        decide: Decide,
        counted: Ints,
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield the true pairs of some rows."""
        hits = self._find(batch, first, rows)
        missing = np.zeros((max(1, len(self._texts.missing)), rows), np.uint8)
        for i, term in enumerate(self._texts.missing):
            missing[i] = batch.nulls(term)[first : first + rows]
        run = _ConditionRun(rows, len(self._texts.entries), len(self._program))
        truth = np.zeros(len(hits.seen), np.int64)
        stack = np.zeros(MAX_DEPTH, np.int64)
        tried = np.zeros(len(self._texts.entries), np.int64)
        none = np.zeros(0, np.int32)
        row = 0
        while row < rows:
            row = conditions.try_conditions(
                row, 1, hits.heads, hits.found, self._witness_at, self._witness_of, none, asked_at, asked,
                self._program, self._program_at, self._lists, missing, truth, tried, stack, counted,
                run.true, run.open_pairs, run.open_leaves, run.counts,
            )  # fmt: skip
            if row < rows:
                run.grow()
        true, open_pairs, open_leaves = run.results()
        yield true[:, 0].astype(np.int64) + first, self._texts.entries[true[:, 1]]
        if not len(open_pairs):
            return
        answers = self._answer(open_leaves[:, 1], open_pairs[open_leaves[:, 0], 0].astype(np.int64) + first, decide)
        results = np.zeros(len(open_pairs), np.uint8)
        conditions.decide_open(
            1, hits.heads, hits.found, self._program, self._program_at, self._lists, missing,
            np.zeros(len(hits.seen), np.int64), stack, open_pairs, np.ascontiguousarray(open_leaves[:, 1]), answers,
            results,
        )  # fmt: skip
        true = open_pairs[results == 1]
        yield true[:, 0].astype(np.int64) + first, self._texts.entries[true[:, 1]]

    def _find(self, batch: EncodedBatch, first: int, rows: int) -> Hits:
        """Return the literals that are in the texts of some rows."""
        hits = Hits(rows, len(self._texts.literals))
        for term, (folded, found) in self._automata.items():
            column = batch.text(term, folded, first, rows)
            found.find(column.data, column.begins, column.ends, hits)
        return hits

    def _answer(self, leaves: npt.NDArray[np.int32], rows: Ints, decide: Decide) -> npt.NDArray[np.uint8]:
        """Return whether each leaf is true on its row: those of one kind and term together."""
        answers = np.zeros(len(leaves), np.uint8)
        numbers = np.array([number for _, number in self._texts.outside], np.int64)
        groups: dict[tuple[PredicateKind, str], list[int]] = {}
        for i, (leaf, _) in enumerate(self._texts.outside):
            term = "" if leaf.kind is PredicateKind.OPAQUE else leaf.term
            groups.setdefault((leaf.kind, term), []).append(i)
        group_of = np.zeros(len(self._texts.outside), np.int64)
        for group, members in enumerate(groups.values()):
            group_of[members] = group
        kinds = group_of[leaves]
        order = np.argsort(kinds, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(kinds[order])) + 1).tolist(), len(order)]
        keys = list(groups)
        for start, end in pairwise(edges):
            some = order[start:end]
            kind, term = keys[int(kinds[some[0]])]
            answers[some] = decide(kind, term, rows[some], numbers[leaves[some]])
        return answers


class _ConditionRun:
    """The results of ``try_conditions``, in arrays that grow."""

    def __init__(self, rows: int, entries: int, steps: int) -> None:
        self._least = entries, entries, steps
        self.true = np.empty((rows + entries, 2), np.int32)
        self.open_pairs = np.empty((rows + entries, 3), np.int32)
        self.open_leaves = np.empty((rows + steps, 2), np.int32)
        self.counts = np.zeros(3, np.int64)

    def grow(self) -> None:
        """Make room for the results of at least one more row."""
        true, pairs, leaves = (
            _grown(one, int(count), least)
            for one, count, least in zip(self._arrays(), self.counts, self._least, strict=True)
        )
        self.true, self.open_pairs, self.open_leaves = true, pairs, leaves

    def results(self) -> Sequence[npt.NDArray[np.int32]]:
        """Return the arrays without the room that is left."""
        return [one[: int(count)] for one, count in zip(self._arrays(), self.counts, strict=True)]

    def _arrays(self) -> Sequence[npt.NDArray[np.int32]]:
        return self.true, self.open_pairs, self.open_leaves


def _grown(array: npt.NDArray[np.int32], count: int, least: int) -> npt.NDArray[np.int32]:
    if count + least <= len(array):
        return array
    more = np.empty((2 * len(array) + least, array.shape[1]), np.int32)
    more[:count] = array[:count]
    return more


def _folded_column(term: Expr) -> str | None:
    """Return the column of which a term is the lower case, None for other terms."""
    if _is_lower(term) and isinstance(column := term.children[0], lang.ColumnRef):
        return column.name
    return None


def _is_lower(term: Expr) -> bool:
    return isinstance(term, lang.Call) and term.function == "lower"
