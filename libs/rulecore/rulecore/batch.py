"""One batch of events as numbers: every value translated once, and only of the terms that something asks for.

See ``rulecore.index`` for what ids and ranks are. A term or condition whose evaluation raises is remembered as broken
and counts as NULL; who uses it finds the reason here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, repeat

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow.compute as pc

from rulecore import lang
from rulecore.index import NO_ID, NULL_ID, NULL_RANK, Index, Ints, Terms
from rulecore.lang import Expr

Bools = npt.NDArray[np.bool_]
_TOGETHER = 64  # conditions that one call of Polars evaluates
_FEW = 8  # a condition is evaluated on its candidates only, if they are fewer than a part in so many
_SMALL = 500  # rows


class Batch:
    """``broken``: by name of a term or condition the reason why it could not be evaluated."""

    def __init__(self, events: pl.DataFrame, terms: Mapping[str, Expr], index: Index) -> None:
        self.height = events.height
        self.broken: dict[str, str] = {}
        self._events = events
        self._terms = terms
        self._index = index
        self._series: dict[str, pl.Series] = {}
        self._ids: dict[str, Ints] = {}
        self._ranks: dict[str, Ints] = {}
        self._nulls: dict[str, Bools] = {}
        self._truth: dict[int, Bools] = {}

    def ids(self, term: str) -> Ints:
        """Per row the number of the term's value among the constants, NO_ID or NULL_ID."""
        if term not in self._ids:
            self._ids[term] = _ids(self._values(term), self._index.terms, term)
        return self._ids[term]

    def ranks(self, term: str) -> Ints:
        """Per row the rank of the term's value among the bounds, or NULL_RANK."""
        if term not in self._ranks:
            self._ranks[term] = self._rank(term)
        return self._ranks[term]

    def nulls(self, term: str) -> Bools:
        """Per row whether the term is NULL."""
        if term not in self._nulls:
            self._nulls[term] = self._values(term).is_null().to_numpy()
        return self._nulls[term]

    def member(self, term: str, ids: Ints, lists: Ints) -> Bools:
        """Per pair whether the value of that id is in the list of that number."""
        known = self._index.terms.members[term]
        wanted = lists * len(self._index.terms.ids[term]) + ids
        place = np.searchsorted(known, wanted)
        np.minimum(place, len(known) - 1, out=place)
        found: Bools = (known[place] == wanted) & (ids >= 0)
        return found

    def opaque(self, rows: Ints, numbers: Ints) -> Bools:
        """Per pair whether the condition of that number is TRUE on that row."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        order = np.argsort(numbers, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(numbers[order])) + 1).tolist(), len(order)]
        result = np.zeros(len(rows), np.bool_)
        for start, end in pairwise(edges):
            some = order[start:end]
            result[some] = self._true_on(int(numbers[some[0]]), rows[some])
        return result

    def prepare(self, numbers: Sequence[int]) -> None:
        """Evaluate conditions on all rows, many in one call; one by one only when that call raises."""
        for start in range(0, len(numbers), _TOGETHER):
            some = numbers[start : start + _TOGETHER]
            try:
                frame = self._events.select(lang.to_polars(self._condition(n)).alias(str(n)) for n in some)
                for number in some:
                    self._truth[number] = _truth(frame[str(number)], self.height)
            except (Exception, pl.exceptions.PanicException):
                for number in some:
                    self._everywhere(number)

    def _condition(self, number: int) -> Expr:
        return self._terms[self._index.opaque[number]]

    def _true_on(self, number: int, rows: Ints) -> Bools:
        if self._index.opaque[number] in self.broken:
            return np.zeros(len(rows), np.bool_)
        if number not in self._truth and len(rows) * _FEW < self.height:
            return self._evaluate(number, self._events, rows)
        return self._everywhere(number)[rows]

    def _everywhere(self, number: int) -> Bools:
        if number not in self._truth:
            self._truth[number] = self._evaluate(number, self._events, None)
        return self._truth[number]

    def _evaluate(self, number: int, events: pl.DataFrame, rows: Ints | None) -> Bools:
        height = self.height if rows is None else len(rows)
        try:
            condition = self._condition(number)
            names = sorted(lang.columns(condition))
            some = events if rows is None or not names else events.select(names)[rows]
            return _truth(some.select(lang.to_polars(condition).alias("t"))["t"], height)
        except (Exception, pl.exceptions.PanicException) as error:
            self.broken[self._index.opaque[number]] = reason(error)
            return np.zeros(height, np.bool_)

    def _values(self, term: str) -> pl.Series:
        if term not in self._series:
            self._series[term] = self._value(term)
        return self._series[term]

    def _value(self, term: str) -> pl.Series:
        try:
            expr = self._terms[term]
            if isinstance(expr, lang.Column):
                return self._events[expr.name]
            values = self._events.select(lang.to_polars(expr).alias("v"))["v"]
            return values if len(values) == self.height else values.new_from_index(0, self.height)
        except (Exception, pl.exceptions.PanicException) as error:
            self.broken[term] = reason(error)
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
    """TRUE or not; a condition without columns gives one value for all rows."""
    truth = series.fill_null(value=False).to_numpy()
    return truth if len(truth) == height else np.repeat(truth, height)


def _ids(values: pl.Series, terms: Terms, term: str) -> Ints:
    """One look-up in a hash table a row.

    Arrow builds its table anew each time, which is worth it unless the batch is small beside the table; Python's is
    the rules' own. Doubles go through Python's, where 0.0 and -0.0 are one.
    """
    known = terms.ids[term]
    if values.dtype.is_float() or len(values) < _SMALL or len(values) * _FEW < len(known):
        ids = np.fromiter(map(known.get, values.to_list(), repeat(NO_ID)), np.int64, len(values))
    else:
        column = values.to_arrow(compat_level=pl.CompatLevel.oldest())
        found = pc.index_in(column, terms.array_of(term, column.type))
        ids = pc.fill_null(found, NO_ID).to_numpy(zero_copy_only=False).astype(np.int64)
    if values.null_count():
        ids[values.is_null().to_numpy()] = NULL_ID
    return ids


def reason(error: BaseException) -> str:
    """One line about what went wrong inside an evaluation."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
