"""What an operator does when a call of the user's code fails: its row goes to a port, with the reason.

A call is whole or nothing: what it would have changed or emitted is left out, and the operator goes on. A row goes to
port ``FAILED``. A window goes on as if the pane on which its function fails had been emitted; instead of its values,
the pane's key, window and first elements go to port ``FAILED_PANE``. By default both ports end as dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.wire.lanes import DeadLetterCode

#: The port of rows and timers for which a call failed: the columns of the input and ``FAILED_REASON``.
FAILED = DeadLetterCode.FAILED.value
#: The port of panes for which a call failed: the columns of the output without values, then those of ``PaneFailures``.
FAILED_PANE = DeadLetterCode.FAILED_PANE.value
#: The column with the function, its method and the error, as text.
FAILED_REASON = "failed_reason"

#: The most elements of a failed pane that its row holds; no more follow once they have ``MAX_ELEMENT_BYTES`` as JSON.
MAX_ELEMENTS = 100
MAX_ELEMENT_BYTES = 64 * 1024
ELEMENTS = "elements"
ELEMENT_COUNT = "element_count"

_HIDDEN = "__failed."

Schema = Mapping[str, pl.DataType]


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A failed call: its reason, and the elements of each input, if they are known."""

    reason: str
    inputs: tuple[pl.DataFrame, ...] = ()


class PaneFailures:
    """The failures among the rows of an output, as columns beside those of the output until ``split``.

    ``inputs``: the columns of the elements that the function receives, by prefix. For each input,
    ``<prefix>element_count`` is the number of elements, and ``<prefix>elements`` has the first ``MAX_ELEMENTS``.
    """

    def __init__(self, inputs: Mapping[str, Schema]) -> None:
        self.columns: dict[str, pl.DataType] = {}
        for prefix, schema in inputs.items():
            element = pl.Struct(_element_columns(schema))
            self.columns |= {f"{prefix}{ELEMENT_COUNT}": pl.Int64(), f"{prefix}{ELEMENTS}": pl.List(element)}
        self.columns[FAILED_REASON] = pl.String()

    def series(self, height: int, failed: Mapping[int, FailedCall]) -> list[pl.Series]:
        """Return the columns for ``height`` rows of output. ``failed``: by the number of the row."""
        values: list[list[object]] = [[None] * height for _ in self.columns]
        for row, call in failed.items():
            values[-1][row] = call.reason
            elements = [value for rows in call.inputs for value in (rows.height, _first_elements(rows))]
            for column, value in zip(values, elements, strict=False):  # without inputs the columns stay null
                column[row] = value
        pairs = zip(self.columns.items(), values, strict=True)
        return [pl.Series(f"{_HIDDEN}{name}", column, dtype=dtype) for (name, dtype), column in pairs]

    def split(self, rows: pl.DataFrame, values: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows that succeeded, and those that failed, in which this class's columns replace ``values``."""
        has_failed = rows[f"{_HIDDEN}{FAILED_REASON}"].is_not_null()
        hidden = {f"{_HIDDEN}{name}": name for name in self.columns}
        failed = rows.filter(has_failed).drop(*values).rename(hidden)
        return rows.filter(~has_failed).drop(*hidden), failed


def _first_elements(rows: pl.DataFrame) -> list[dict[str, object]]:
    """Return the first rows, without the columns of the engine."""
    columns = _element_columns(rows.schema)
    first = rows.head(MAX_ELEMENTS).select(pl.col(name).cast(dtype, strict=False) for name, dtype in columns.items())
    if not first.width:
        return [{}] * first.height
    sizes = first.select(pl.struct(pl.all()).struct.json_encode().str.len_bytes()).to_series().cum_sum()
    return first.head(1 + int(np.searchsorted(sizes.to_numpy(), MAX_ELEMENT_BYTES))).to_dicts()


def _element_columns(schema: Schema) -> dict[str, pl.DataType]:
    """Return the columns of an element that JSON can hold, not those of the engine. Bytes are text, or null."""
    columns = {name: dtype for name, dtype in schema.items() if not name.startswith("__")}
    flat = {name: pl.String() if dtype == pl.Binary else dtype for name, dtype in columns.items()}
    return {name: dtype for name, dtype in flat.items() if "Binary" not in str(dtype)}
