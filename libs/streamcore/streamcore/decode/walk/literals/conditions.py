"""Decides conditions on texts, for the rows and conditions that have a chance.

A condition is a program of rows ``operation, x, y`` for a stack of truth values. It is tried on a row if one of the
tests is true that are registered for it (its *witness*), or if it is asked for. What a program cannot decide itself
(``OUTSIDE``) is unknown at first; the program is then run again with the answers, only where they matter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcore.decode.walk.compiler import entry, inlined
from streamcore.decode.walk.literals.automaton import Ints, Pairs, States
from streamcore.decode.walk.words import Bytes

FALSE, UNKNOWN, TRUE = range(3)
#: One of the tests ``lists[x:y]`` is true. The text of column x is missing. The leaf x is decided elsewhere. The
#: opposite. Both of the last two, one of them. Go on at row x if the last value is false, or true: it stays.
ANY_TEST, MISSING, OUTSIDE, NOT, AND, OR, UNLESS_FALSE, UNLESS_TRUE = range(8)


@inlined
def _run(
    program: Pairs,
    at: int,
    stop: int,
    lists: States,
    truth: Ints,
    mark: int,
    missing: npt.NDArray[np.uint8],
    row: int,
    leaves: States,
    answers: Bytes,
    first: int,
    last: int,
    stack: Ints,
) -> int:
    """Return the truth of a condition on a row. ``leaves[first:last]``: those with an answer."""
    top = -1
    while at < stop:
        operation, x, y = int(program[at, 0]), int(program[at, 1]), int(program[at, 2])
        at += 1
        if operation == ANY_TEST:
            top += 1
            stack[top] = FALSE
            for i in range(x, y):
                if truth[lists[i]] == mark:
                    stack[top] = TRUE
                    break
        elif operation == UNLESS_FALSE:
            if stack[top] == FALSE:
                at = x
        elif operation == UNLESS_TRUE:
            if stack[top] == TRUE:
                at = x
        elif operation == AND:
            top -= 1
            stack[top] = min(stack[top], stack[top + 1])
        elif operation == OR:
            top -= 1
            stack[top] = max(stack[top], stack[top + 1])
        elif operation == NOT:
            stack[top] = TRUE - stack[top]
        elif operation == MISSING:
            top += 1
            stack[top] = TRUE if missing[x, row] else FALSE
        else:
            top += 1
            stack[top] = UNKNOWN
            for i in range(first, last):
                if leaves[i] == x:
                    stack[top] = TRUE if answers[i] else FALSE
    return int(stack[0])


@entry(
    "int64(int64, int64, int32[::1], int32[:, ::1], int32[::1], int32[::1], int32[::1], int64[::1], int32[::1],"
    " int32[:, ::1], int32[::1], int32[::1], uint8[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int32[:, ::1], int32[:, ::1], int32[:, ::1], int64[::1])"
)
def try_conditions(  # noqa: PLR0915
    row: int,
    mark: int,
    heads: States,
    found: Pairs,
    witness_at: States,
    witness_of: States,
    always: States,
    asked_at: Ints,
    asked_of: States,
    program: Pairs,
    program_at: States,
    lists: States,
    missing: npt.NDArray[np.uint8],
    truth: Ints,
    tried: Ints,
    stack: Ints,
    cost: Ints,
    true: Pairs,
    open_pairs: Pairs,
    open_leaves: Pairs,
    counts: Ints,
) -> int:
    """Run the conditions that have a chance on each row; return the row at which there is no room left.

    ``heads``, ``found``: as ``find_literals`` writes them. ``witness_of``: the conditions of each test; ``always``:
    those to try on each row; ``asked_of``: those to try on one row. ``true``: the pairs of row and condition that are
    true; ``open_pairs``: those that are unknown, with the end of their leaves in ``open_leaves``, which are pairs of
    the number of the open pair and a leaf. ``counts``: of these three. ``cost``: of each condition, how often it ran.
    """
    conditions = len(program_at) - 1
    no_answers = missing[0, :0]
    number_true, number_open, number_leaves = counts[0], counts[1], counts[2]
    while row < len(heads):
        if (
            number_true + conditions > len(true)
            or number_open + conditions > len(open_pairs)
            or number_leaves + len(program) > len(open_leaves)
        ):
            break
        marked = mark + row
        item = int(heads[row])
        while item > 0:
            truth[found[item - 1, 1]] = marked
            item = int(found[item - 1, 0])
        item = int(heads[row])
        source = 0  # the tests that are true, then ``always``, then those asked for
        while source < 3:
            if source == 0:
                if item == 0:
                    source = 1
                    continue
                test = int(found[item - 1, 1])
                item = int(found[item - 1, 0])
                i, end = int(witness_at[test]), int(witness_at[test + 1])
                some = witness_of
            elif source == 1:
                source = 2
                i, end = 0, len(always)
                some = always
            else:
                source = 3
                i, end = asked_at[row], asked_at[row + 1]
                some = asked_of
            while i < end:
                condition = int(some[i])
                i += 1
                if tried[condition] == marked:
                    continue
                tried[condition] = marked
                cost[condition] += 1
                begin, stop = int(program_at[condition]), int(program_at[condition + 1])
                result = _run(program, begin, stop, lists, truth, marked, missing, row, lists, no_answers, 0, 0, stack)
                if result == TRUE:
                    true[number_true, 0] = row
                    true[number_true, 1] = condition
                    number_true += 1
                elif result == UNKNOWN:
                    for step in range(begin, stop):
                        if program[step, 0] == OUTSIDE:
                            open_leaves[number_leaves, 0] = number_open
                            open_leaves[number_leaves, 1] = program[step, 1]
                            number_leaves += 1
                    open_pairs[number_open, 0] = row
                    open_pairs[number_open, 1] = condition
                    open_pairs[number_open, 2] = number_leaves
                    number_open += 1
        row += 1
    counts[0], counts[1], counts[2] = number_true, number_open, number_leaves
    return row


@entry(
    "void(int64, int32[::1], int32[:, ::1], int32[:, ::1], int32[::1], int32[::1], uint8[:, ::1], int64[::1],"
    " int64[::1], int32[:, ::1], int32[::1], uint8[::1], uint8[::1])"
)
def decide_open(
    mark: int,
    heads: States,
    found: Pairs,
    program: Pairs,
    program_at: States,
    lists: States,
    missing: npt.NDArray[np.uint8],
    truth: Ints,
    stack: Ints,
    open_pairs: Pairs,
    leaves: States,
    answers: Bytes,
    results: Bytes,
) -> None:
    """Write to ``results`` whether each open pair is true, with an answer for each of its leaves."""
    first, before = 0, -1
    for i in range(len(open_pairs)):
        row, condition, last = int(open_pairs[i, 0]), int(open_pairs[i, 1]), int(open_pairs[i, 2])
        marked = mark + row
        if row != before:
            before = row
            item = int(heads[row])
            while item > 0:
                truth[found[item - 1, 1]] = marked
                item = int(found[item - 1, 0])
        begin, stop = int(program_at[condition]), int(program_at[condition + 1])
        truth_value = _run(
            program, begin, stop, lists, truth, marked, missing, row, leaves, answers, first, last, stack
        )
        results[i] = 1 if truth_value == TRUE else 0
        first = last
