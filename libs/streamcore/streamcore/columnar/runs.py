"""Array functions over runs: neighbours with one number, such as the rows of a window in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamcore.columnar.hash_table import Ints

Arrays = Mapping[str, npt.NDArray[Any]]


def positions(starts: Ints, length: int) -> tuple[Ints, Ints]:
    """Return, for each of ``length`` rows, the index of its run and its position in the run, from 0.

    ``starts``, of shape (runs,): the first row of each run, the first of which is row 0.
    """
    counts = np.diff(np.append(starts, length))
    return np.repeat(np.arange(len(starts)), counts), np.arange(length) - np.repeat(starts, counts)


def accumulate(columns: Arrays, position: Ints, merge: Callable[[Arrays, Arrays], Arrays]) -> dict[str, Any]:
    """Return, for each row, everything from the first row of its run up to it, merged.

    ``position``, of shape (rows,): of each row in its run. ``merge`` combines two equally long sets of rows pair by
    pair. It is called a number of times that is the logarithm of the longest run. (Hillis, Steele: "Data parallel
    algorithms", 1986.)
    """
    merged = dict(columns)
    longest = int(position.max()) if position.size else 0
    step = 1
    while step <= longest:
        rows = np.flatnonzero(position >= step)
        left, right = ({name: column[r] for name, column in merged.items()} for r in (rows - step, rows))
        for name, values in merge(left, right).items():
            column = merged[name].copy()
            column[rows] = values
            merged[name] = column
        step *= 2
    return merged
