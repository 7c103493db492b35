"""A frame of events encoded as numbers: each value is encoded once, and only those of terms that the index needs.

``rulecore.matching.index`` defines ids and ranks. A term or condition whose evaluation raises is NULL, and its error is
in ``broken``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore import language as lang
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from rulecore.matching.candidate_patterns import PatternSearch, compile_pattern
from rulecore.matching.index import NO_ID, NULL_ID, NULL_RANK, ConstantPool, Index, Ints, parse_grid_cell_name

Bools = npt.NDArray[np.bool_]
_BATCH_CONDITIONS = 64  # most conditions that one call of Polars evaluates
_FEW = 8  # a condition is evaluated on its candidates only if they are fewer than 1/8 of the rows
_SMALL = 500  # rows


class CompiledTerms:
    """The Polars expressions of terms and conditions, by name; each is compiled on first use and cached."""

    def __init__(self, terms: Mapping[str, Expr]) -> None:
        self._terms = terms
        self._polars: dict[str, pl.Expr] = {}
        self._columns: dict[str, frozenset[str]] = {}
        self._patterns: dict[str, PatternSearch | None] = {}

    def polars(self, name: str) -> pl.Expr:
        """Return the Polars expression of a term; raise whatever compiling it raises."""
        if name not in self._polars:
            self._polars[name] = to_polars(self._terms[name])
        return self._polars[name]

    def columns(self, name: str) -> frozenset[str]:
        """Return the columns that the term reads."""
        if name not in self._columns:
            self._columns[name] = lang.columns(self._terms[name])
        return self._columns[name]

    def pattern(self, name: str) -> PatternSearch | None:
        """Return the search of a condition that is a pattern of one text; None for other conditions."""
        if name not in self._patterns:
            self._patterns[name] = compile_pattern(self._terms[name])
        return self._patterns[name]

    def column(self, name: str) -> str | None:
        """Return the name of the column if the term is one, None for a computed term."""
        expr = self._terms[name]
        return expr.name if isinstance(expr, lang.ColumnRef) else None


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Texts in UTF-8: that of row i is ``data[begins[i]:ends[i]]``, empty for NULL. ``ascii``: whether all of it is."""

    data: npt.NDArray[np.uint8]
    begins: Ints
    ends: Ints
    ascii: bool


class EncodedBatch:
    """The ids, ranks and truth values of a frame of events. ``broken``: errors by the name of a term or condition."""

    def __init__(self, events: pl.DataFrame, expressions: CompiledTerms, index: Index) -> None:
        self.height = events.height
        self.broken: dict[str, str] = {}
        self._events = events
        self._expressions = expressions
        self._index = index
        self._series: dict[str, pl.Series] = {}
        self._ids: dict[str, Ints] = {}
        self._ranks: dict[str, Ints] = {}
        self._nulls: dict[str, Bools] = {}
        self._truth: dict[int, Bools] = {}

    def ids(self, term: str) -> Ints:
        """Return for each row the id of the term's value, ``NO_ID`` or ``NULL_ID``."""
        if term not in self._ids:
            cells = parse_grid_cell_name(term)
            self._ids[term] = self._cells(*cells) if cells else _ids(self._values(term), self._index.terms, term)
        return self._ids[term]

    def _cells(self, term: str, level: int) -> Ints:
        """Return for each row the grid cell of the term's value, or ``NULL_ID``."""
        ranks = self.ranks(term)
        return np.where(ranks == NULL_RANK, NULL_ID, ranks >> level)

    def ranks(self, term: str) -> Ints:
        """Return for each row the rank of the term's value among its bounds, or ``NULL_RANK``."""
        if term not in self._ranks:
            self._ranks[term] = self._compute_ranks(term)
        return self._ranks[term]

    def nulls(self, term: str) -> Bools:
        """Return for each row whether the term is NULL."""
        if term not in self._nulls:
            self._nulls[term] = self._values(term).is_null().to_numpy()
        return self._nulls[term]

    def text(self, term: str, folded: str | None, first: int, rows: int) -> TextColumn:
        """Return the texts of a term in some rows.

        ``folded``: the column of which the term is the lower case, if it is; texts of ASCII are then the column's own.
        """
        if folded in self._events.columns:
            column = self._text(self._events[folded][first : first + rows])
            if column.ascii:
                return column
        return self._text(self._values(term)[first : first + rows])

    @staticmethod
    def _text(values: pl.Series) -> TextColumn:
        rows = len(values)
        if values.dtype != pl.String:  # a term that raises
            nothing = np.zeros(rows, np.int64)
            return TextColumn(np.zeros(0, np.uint8), nothing, nothing, ascii=True)
        column = values.to_arrow(compat_level=pl.CompatLevel.oldest())
        _, offsets, content = column.buffers()
        places = np.frombuffer(offsets, np.int64, rows + 1, 8 * column.offset).copy()
        data = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
        begins, ends = places[:-1].copy(), places[1:].copy()
        if column.null_count:
            empty = values.is_null().to_numpy()
            ends[empty] = begins[empty]
        used = data[places[0] : places[-1]]
        return TextColumn(data, begins, ends, ascii=not len(used) or int(used.max()) < 0x80)

    def member(self, term: str, ids: Ints, lists: Ints) -> Bools:
        """Return whether the value with id ``ids[i]`` is in the list with number ``lists[i]``."""
        known = self._index.terms.members[term]
        wanted = lists * len(self._index.terms.ids[term]) + ids
        index = np.searchsorted(known, wanted)
        np.minimum(index, len(known) - 1, out=index)
        is_member: Bools = (known[index] == wanted) & (ids >= 0)
        return is_member

    def opaque(self, rows: Ints, numbers: Ints) -> Bools:
        """Return whether the opaque condition with number ``numbers[i]`` is TRUE on row ``rows[i]``."""
        result = np.zeros(len(rows), np.bool_)
        order = np.argsort(numbers, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist(), len(order)]
        rare: list[Ints] = []  # for each condition with few candidates, their indexes in ``rows``
        for start, end in pairwise(edges):
            candidates = order[start:end]
            number = int(numbers[candidates[0]])
            pattern = self._expressions.pattern(self._index.opaque[number])
            if number in self._truth:
                result[candidates] = self._truth[number][rows[candidates]]
            elif pattern is not None and len(candidates) <= max(_SMALL, self.height // _FEW):
                candidates = self._search(pattern, candidates, rows, result)
                if len(candidates):
                    rare.append(candidates)
            elif len(candidates) * _FEW >= self.height:
                result[candidates] = self._truth_of_all_rows(number)[rows[candidates]]
            else:
                rare.append(candidates)
        for batch in self._batches(rare):
            self._evaluate_candidates(batch, rows, numbers, result)
        return result

    def _search(self, pattern: PatternSearch, candidates: Ints, rows: Ints, result: Bools) -> Ints:
        """Write the results of a pattern into ``result``; return the candidates of which the pattern cannot say."""
        try:
            wanted, place = np.unique(rows[candidates], return_inverse=True)
            texts = pattern.texts(self._events, wanted)
        except (Exception, pl.exceptions.PanicException):
            return candidates  # Polars finds and reports the fault
        found = np.array([pattern.search(text) for text in texts], np.int64)[place]
        result[candidates] = found == 1
        unsure: Ints = candidates[found < 0]
        return unsure

    def prepare(self, numbers: Sequence[int]) -> None:
        """Evaluate opaque conditions on all rows, many in one call of Polars, and cache the results."""
        for start in range(0, len(numbers), _BATCH_CONDITIONS):
            batch = numbers[start : start + _BATCH_CONDITIONS]
            self._truth.update(self._evaluate(batch, self._events))

    def _truth_of_all_rows(self, number: int) -> Bools:
        """Return for each row whether the condition is TRUE."""
        self.prepare([] if number in self._truth else [number])
        return self._truth[number]

    def _batches(self, rare: Sequence[Ints]) -> Iterator[list[Ints]]:
        """Divide conditions into batches, each of which one call of Polars evaluates on all candidates of the batch."""
        batch: list[Ints] = []
        for candidates in rare:
            if batch and (len(batch) == _BATCH_CONDITIONS or sum(map(len, batch)) * _FEW >= self.height):
                yield batch
                batch = []
            batch.append(candidates)
        if batch:
            yield batch

    def _evaluate_candidates(self, batch: Sequence[Ints], rows: Ints, numbers: Ints, result: Bools) -> None:
        """Write the results of a batch of conditions into ``result``."""
        wanted = np.unique(rows[np.concatenate(batch)])
        conditions = [int(numbers[candidates[0]]) for candidates in batch]
        used = {name for n in conditions for name in self._expressions.columns(self._index.opaque[n])}
        names = sorted(used.intersection(self._events.columns))  # a missing column breaks its own condition only
        truth = self._evaluate(conditions, self._events.select(names)[wanted] if names else self._events)
        for number, candidates in zip(conditions, batch, strict=True):
            indexes = np.searchsorted(wanted, rows[candidates]) if names else rows[candidates]
            result[candidates] = truth[number][indexes]

    def _evaluate(self, numbers: Sequence[int], events: pl.DataFrame) -> dict[int, Bools]:
        """Return the truth of each condition on all rows of the frame.

        The conditions are evaluated together, and one by one only if that raises.
        """
        try:
            frame = events.select(self._expressions.polars(self._index.opaque[n]).alias(str(n)) for n in numbers)
            return {n: _truth(frame[str(n)], events.height) for n in numbers}
        except (Exception, pl.exceptions.PanicException) as error:
            if len(numbers) == 1:
                self.broken[self._index.opaque[numbers[0]]] = error_text(error)
                return {numbers[0]: np.zeros(events.height, np.bool_)}
            return {n: truth for number in numbers for n, truth in self._evaluate([number], events).items()}

    def _values(self, term: str) -> pl.Series:
        """Return the values of the term for all rows, cached."""
        if term not in self._series:
            self._series[term] = self._compute_values(term)
        return self._series[term]

    def _compute_values(self, term: str) -> pl.Series:
        """Compute ``_values``: NULLs if the term raises."""
        try:
            if (column := self._expressions.column(term)) is not None:
                return self._events[column]
            values = self._events.select(self._expressions.polars(term).alias("v"))["v"]
            return values if len(values) == self.height else values.new_from_index(0, self.height)
        except (Exception, pl.exceptions.PanicException) as error:
            self.broken[term] = error_text(error)
            return pl.Series("v", [None], dtype=pl.Int64).new_from_index(0, self.height)

    def _compute_ranks(self, term: str) -> Ints:
        """Compute ``ranks``."""
        values, bounds = self._values(term), self._index.terms.bounds[term]
        filled = values.fill_null(0).to_numpy().astype(bounds.dtype, copy=False)
        index = np.searchsorted(bounds, filled)
        equal = bounds[np.minimum(index, len(bounds) - 1)] == filled
        ranks: Ints = 2 * index + equal
        if values.null_count():
            ranks[self.nulls(term)] = NULL_RANK
        return ranks


def _truth(series: pl.Series, height: int) -> Bools:
    """Return whether each row is TRUE; a condition without columns gives one value for all rows."""
    truth = series.fill_null(value=False).to_numpy()
    return truth if len(truth) == height else np.repeat(truth, height)


def _ids(values: pl.Series, terms: ConstantPool, term: str) -> Ints:
    """Return the id of each value, by one lookup in a hash table per row.

    Arrow builds its hash table for each call, which pays off unless the values are few compared with the constants;
    then Python looks them up in the dict of the constants. So it does for doubles, since 0.0 and -0.0 are equal there.
    """
    if values.null_count() == len(values):  # also a broken term, whose type is arbitrary
        return np.full(len(values), NULL_ID, np.int64)
    known = terms.ids[term]
    if values.dtype.is_float() or len(values) < _SMALL or len(values) * _FEW < len(known):
        ids = np.fromiter(map(known.get, values.to_list(), repeat(NO_ID)), np.int64, len(values))
    else:
        import pyarrow.compute as pc  # the import takes 50 ms, which small frames avoid

        column = values.to_arrow(compat_level=pl.CompatLevel.oldest())
        indexes = pc.index_in(column, terms.constants_array(term, column.type))
        ids = pc.fill_null(indexes, NO_ID).to_numpy(zero_copy_only=False).astype(np.int64)
    if values.null_count():
        ids[values.is_null().to_numpy()] = NULL_ID
    return ids


def error_text(error: BaseException) -> str:
    """Return the error of an evaluation in one line of at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
