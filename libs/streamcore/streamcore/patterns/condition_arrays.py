"""Iterative conditions over arrays: the results of ``expressions`` over lists, for numbers without nulls.

An expression that arrays could compute otherwise than Python does (a whole number that overflows, one beside doubles
that has no exact double, an operation that is not here) has no result: its conditions are evaluated over lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcore.patterns.expressions import BOOLEAN, ON_VALUES, MatchFunction, MatchRead
from streamcore.patterns.match_store import Ints, Mask

_LARGEST: Final = 2**63 - 1
#: Up to here each whole number is a double.
_EXACT: Final = 2**53
#: The reads of groups of values that arrays compute.
READS: Final = frozenset([MatchFunction.COUNT, MatchFunction.FIRST, MatchFunction.LAST])


class NullableArray(NamedTuple):
    """Whole numbers, doubles or truth values. ``valid``: which are not null; None for all."""

    values: npt.NDArray[Any]
    valid: Mask | None = None


def read_groups(read: MatchRead, values: npt.NDArray[Any], bounds: Ints) -> NullableArray:
    """Return one of ``READS`` of groups: group i is the values from ``bounds[i]`` to ``bounds[i + 1]``."""
    starts, ends = bounds[:-1], bounds[1:]
    if read.function is MatchFunction.COUNT:
        return NullableArray(ends - starts)
    is_some = starts < ends
    if not len(values):
        return NullableArray(np.zeros(len(starts), values.dtype), is_some)
    at = starts if read.function is MatchFunction.FIRST else ends - 1
    return NullableArray(values[np.where(is_some, at, 0)], None if is_some.all() else is_some)


def hold_arrays(
    tree: Any, candidates: Mapping[str, npt.NDArray[Any]], matched: Mapping[MatchRead, NullableArray]
) -> Mask | None:
    """Return where the condition that a tree is (see ``expressions``) holds; None if arrays do not compute it."""
    with np.errstate(all="ignore"):
        found = _evaluate(tree, candidates, matched)
    if found is None or found.values.dtype != np.bool_ or not found.values.ndim:
        return None
    holds: Mask = found.values if found.valid is None else found.values & found.valid
    return holds


def _evaluate(
    tree: Any, candidates: Mapping[str, npt.NDArray[Any]], matched: Mapping[MatchRead, NullableArray]
) -> NullableArray | None:
    if isinstance(tree, MatchRead):
        return matched[tree]
    operation, *operands = tree
    if operation == "column":
        return NullableArray(candidates[operands[0]])
    if operation == "value":
        return _constant(operands[0])
    parts = [_evaluate(operand, candidates, matched) for operand in operands]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    of_truth = [part.values.dtype == np.bool_ for part in known]
    if operation == "is_null":
        (part,) = known
        return NullableArray(np.zeros(part.values.shape, bool) if part.valid is None else ~part.valid)
    if operation in ("&", "|", "~"):
        return _LOGIC[operation](*known) if all(of_truth) else None
    if operation == "negative":
        (part,) = known
        is_small = part.values.dtype.kind == "f" or (not any(of_truth) and _largest(part.values) <= _LARGEST)
        return NullableArray(-part.values, part.valid) if is_small else None
    if operation not in ON_VALUES:
        return None
    left, right = known
    if any(of_truth) or not _is_exact(operation, left.values, right.values):
        return None
    return NullableArray(ON_VALUES[operation](left.values, right.values), _both_valid(left, right))


def _constant(value: Any) -> NullableArray | None:
    if type(value) is bool or type(value) is float or (type(value) is int and abs(value) <= _LARGEST):
        return NullableArray(np.array(value))
    return None


def _is_exact(operation: str, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Return whether the operation on two arrays of numbers gives the same as in Python."""
    whole = [one for one in (left, right) if one.dtype.kind == "i"]
    if len(whole) == 1:
        return _largest(whole[0]) <= _EXACT
    if not whole or operation in BOOLEAN:
        return True
    a, b = map(_largest, whole)
    return (a * b if operation == "*" else a + b) <= _LARGEST


def _largest(values: npt.NDArray[Any]) -> int:
    return max(int(values.max()), -int(values.min())) if values.size else 0


def _both_valid(left: NullableArray, right: NullableArray) -> Mask | None:
    if left.valid is None or right.valid is None:
        return right.valid if left.valid is None else left.valid
    return left.valid & right.valid


def _negate(part: NullableArray) -> NullableArray:
    return NullableArray(~part.values, part.valid)


def _both(left: NullableArray, right: NullableArray) -> NullableArray:
    return _negate(_either(_negate(left), _negate(right)))


def _either(left: NullableArray, right: NullableArray) -> NullableArray:
    """Return whether one is true: null if neither is and one is null."""
    holds = _true(left) | _true(right)
    valid = _both_valid(left, right)
    return NullableArray(holds, None if valid is None else valid | holds)


def _true(part: NullableArray) -> npt.NDArray[Any]:
    return part.values if part.valid is None else part.values & part.valid


_LOGIC: Final[Mapping[str, Callable[..., NullableArray]]] = {"&": _both, "|": _either, "~": _negate}

__all__ = ["READS", "NullableArray", "hold_arrays", "read_groups"]
