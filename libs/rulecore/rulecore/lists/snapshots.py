"""Converts a list store to control records and back, for back-tests and explanations.

A kernel that applies the ``control_records`` of a store has the content of the store. Only the current version of a
list is known, not its earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.language import Expr
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.list_columns import extract_list_columns
from rulecore.lists.store import ListStore


def store_from_records(records: Iterable[tuple[str, bytes]]) -> ListStore:
    """Return the lists that these control records publish, each list's parts before its head."""
    store = ListStore.empty()
    for key, value in records:
        store, _ = store.apply(key, value)
    return store


def control_records(store: ListStore, without: Iterable[str] = ()) -> list[tuple[str, bytes]]:
    """Return keys and values of records that publish the store, parts first. ``without``: names of lists to omit."""
    left_out = {LIST_KEY + name for name in without}
    rows = [(key, value) for key, value in store.records() if key not in left_out]
    parts = [row for row in rows if row[0].startswith(LIST_PART_KEY)]
    return [*parts, *(row for row in rows if row[0].startswith(LIST_KEY))]


def with_columns_for(frame: pl.DataFrame, expr: Expr, contents: Mapping[str, ListContent]) -> tuple[pl.DataFrame, Expr]:
    """Return the frame with the list columns of a condition, and the condition over these columns."""
    lifted, columns = extract_list_columns(expr)
    return with_list_columns(frame, columns, contents), lifted
