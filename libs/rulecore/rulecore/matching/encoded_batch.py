"""One batch of events as numbers: every value translated once, and only of the terms that something asks for.

See ``rulecore.matching.index`` for the meaning of ids and ranks. A term or condition whose evaluation raises is
remembered as broken and counts as NULL; who uses it finds the reason here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, repeat

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore import language as lang
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from rulecore.matching.index import NO_ID, NULL_ID, NULL_RANK, ConstantPool, Index, Ints, parse_grid_cell_name

Bools = npt.NDArray[np.bool_]
_TOGETHER = 64  # conditions that one call of Polars evaluates
_FEW = 8  # a condition is evaluated on its candidates only, if they are fewer than a part in so many
_SMALL = 500  # rows


class CompiledTerms:
    """The expressions behind the names of terms and conditions; each is compiled on first use and kept."""

    def __init__(self, terms: Mapping[str, Expr]) -> None:
        self._terms = terms
        self._polars: dict[str, pl.Expr] = {}
        self._columns: dict[str, frozenset[str]] = {}

    def polars(self, name: str) -> pl.Expr:
        """Return the term in Polars' form; raise the errors of compiling."""
        if name not in self._polars:
            self._polars[name] = to_polars(self._terms[name])
        return self._polars[name]

    def columns(self, name: str) -> frozenset[str]:
        """Return the columns that it reads."""
        if name not in self._columns:
            self._columns[name] = lang.columns(self._terms[name])
        return self._columns[name]

    def column(self, name: str) -> str | None:
        """Return the column that a term is, None for a computed one."""
        expr = self._terms[name]
        return expr.name if isinstance(expr, lang.ColumnRef) else None


class EncodedBatch:
    """``broken``: by name of a term or condition the reason why it could not be evaluated."""

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
        """Return per row the number of the term's value among the constants, NO_ID or NULL_ID."""
        if term not in self._ids:
            cells = parse_grid_cell_name(term)
            self._ids[term] = self._cells(*cells) if cells else _ids(self._values(term), self._index.terms, term)
        return self._ids[term]

    def _cells(self, term: str, level: int) -> Ints:
        ranks = self.ranks(term)
        return np.where(ranks == NULL_RANK, NULL_ID, ranks >> level)

    def ranks(self, term: str) -> Ints:
        """Return per row the rank of the term's value among the bounds, or NULL_RANK."""
        if term not in self._ranks:
            self._ranks[term] = self._rank(term)
        return self._ranks[term]

    def nulls(self, term: str) -> Bools:
        """Return per row whether the term is NULL."""
        if term not in self._nulls:
            self._nulls[term] = self._values(term).is_null().to_numpy()
        return self._nulls[term]

    def member(self, term: str, ids: Ints, lists: Ints) -> Bools:
        """Return per pair whether the value of that id is in the list of that number."""
        known = self._index.terms.members[term]
        wanted = lists * len(self._index.terms.ids[term]) + ids
        place = np.searchsorted(known, wanted)
        np.minimum(place, len(known) - 1, out=place)
        found: Bools = (known[place] == wanted) & (ids >= 0)
        return found

    def opaque(self, rows: Ints, numbers: Ints) -> Bools:
        """Return per pair whether the condition of that number is TRUE on that row."""
        result = np.zeros(len(rows), np.bool_)
        order = np.argsort(numbers, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist(), len(order)]
        few: list[Ints] = []
        for start, end in pairwise(edges):
            some = order[start:end]
            number = int(numbers[some[0]])
            if number in self._truth or len(some) * _FEW >= self.height:
                result[some] = self._everywhere(number)[rows[some]]
            else:
                few.append(some)
        for part in self._together(few):
            self._on_rows(part, rows, numbers, result)
        return result

    def prepare(self, numbers: Sequence[int]) -> None:
        """Evaluate conditions on all rows, many in one call."""
        for start in range(0, len(numbers), _TOGETHER):
            some = numbers[start : start + _TOGETHER]
            self._truth.update(self._evaluate(some, self._events))

    def _everywhere(self, number: int) -> Bools:
        self.prepare([] if number in self._truth else [number])
        return self._truth[number]

    def _together(self, few: Sequence[Ints]) -> Iterator[list[Ints]]:
        """Conditions with few candidates each, as many as one call evaluates on all rows of any of them."""
        part: list[Ints] = []
        for some in few:
            if part and (len(part) == _TOGETHER or sum(map(len, part)) * _FEW >= self.height):
                yield part
                part = []
            part.append(some)
        if part:
            yield part

    def _on_rows(self, part: Sequence[Ints], rows: Ints, numbers: Ints, result: Bools) -> None:
        """Fill in the pairs of these conditions, each of which is a list of places in ``rows``."""
        wanted = np.unique(rows[np.concatenate(part)])
        conditions = [int(numbers[some[0]]) for some in part]
        used = {name for n in conditions for name in self._expressions.columns(self._index.opaque[n])}
        names = sorted(used.intersection(self._events.columns))  # one that is not there breaks its condition, no more
        truth = self._evaluate(conditions, self._events.select(names)[wanted] if names else self._events)
        for number, some in zip(conditions, part, strict=True):
            places = np.searchsorted(wanted, rows[some]) if names else rows[some]
            result[some] = truth[number][places]

    def _evaluate(self, numbers: Sequence[int], events: pl.DataFrame) -> dict[int, Bools]:
        """Evaluate conditions on all rows; one by one only when evaluating them together raises."""
        try:
            frame = events.select(self._expressions.polars(self._index.opaque[n]).alias(str(n)) for n in numbers)
            return {n: _truth(frame[str(n)], events.height) for n in numbers}
        except (Exception, pl.exceptions.PanicException) as error:
            if len(numbers) == 1:
                self.broken[self._index.opaque[numbers[0]]] = error_text(error)
                return {numbers[0]: np.zeros(events.height, np.bool_)}
            return {n: truth for number in numbers for n, truth in self._evaluate([number], events).items()}

    def _values(self, term: str) -> pl.Series:
        if term not in self._series:
            self._series[term] = self._value(term)
        return self._series[term]

    def _value(self, term: str) -> pl.Series:
        try:
            if (column := self._expressions.column(term)) is not None:
                return self._events[column]
            values = self._events.select(self._expressions.polars(term).alias("v"))["v"]
            return values if len(values) == self.height else values.new_from_index(0, self.height)
        except (Exception, pl.exceptions.PanicException) as error:
            self.broken[term] = error_text(error)
            return pl.Series("v", [None], dtype=pl.Int64).new_from_index(0, self.height)

    def _rank(self, term: str) -> Ints:
        values, bounds = self._values(term), self._index.terms.bounds[term]
        filled = values.fill_null(0).to_numpy().astype(bounds.dtype, copy=False)
        place = np.searchsorted(bounds, filled)
        equal = bounds[np.minimum(place, len(bounds) - 1)] == filled
        ranks: Ints = 2 * place + equal
        if values.null_count():
            ranks[self.nulls(term)] = NULL_RANK
        return ranks


def _truth(series: pl.Series, height: int) -> Bools:
    """Return whether each row is TRUE; a condition without columns gives one value for all rows."""
    truth = series.fill_null(value=False).to_numpy()
    return truth if len(truth) == height else np.repeat(truth, height)


def _ids(values: pl.Series, terms: ConstantPool, term: str) -> Ints:
    """Return the ids, with one look-up in a hash table a row.

    Arrow builds its table anew each time, which is worth it unless the batch is small beside the table; Python's is
    the rules' own. Doubles go through Python's, where 0.0 and -0.0 are one.
    """
    if values.null_count() == len(values):  # a term that could not be evaluated too, whatever its type
        return np.full(len(values), NULL_ID, np.int64)
    known = terms.ids[term]
    if values.dtype.is_float() or len(values) < _SMALL or len(values) * _FEW < len(known):
        ids = np.fromiter(map(known.get, values.to_list(), repeat(NO_ID)), np.int64, len(values))
    else:
        import pyarrow.compute as pc  # a twentieth of a second, which small batches do without

        column = values.to_arrow(compat_level=pl.CompatLevel.oldest())
        found = pc.index_in(column, terms.constants_array(term, column.type))
        ids = pc.fill_null(found, NO_ID).to_numpy(zero_copy_only=False).astype(np.int64)
    if values.null_count():
        ids[values.is_null().to_numpy()] = NULL_ID
    return ids


def error_text(error: BaseException) -> str:
    """Return one line about the error inside an evaluation."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
