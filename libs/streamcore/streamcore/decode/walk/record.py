"""Walks through one record, along the tree of the paths of its stream's fields."""

from __future__ import annotations

from streamcore.decode.walk.compiler import inlined
from streamcore.decode.walk.fields import read_field
from streamcore.decode.walk.grammar import (
    CLOSE_OBJECT,
    COMMA,
    INVALID,
    OPEN_OBJECT,
    QUOTE,
    skip_colon,
    skip_literal,
    skip_space,
    skip_string,
    skip_value,
)
from streamcore.decode.walk.texts import unescape
from streamcore.decode.walk.tree import (
    CHILDREN,
    ESCAPED,
    FIRST,
    FIRST_CHILD,
    KIND,
    LENGTH,
    MASK,
    NAME,
    NEXT,
    OBJECT,
    PARENT,
    WORD,
    Int64s,
)
from streamcore.decode.walk.words import PAD, Bytes, byte, eight_bytes

_LETTER_N = ord("n")
#: No node: the name is on no path.
_OTHER = -1


@inlined
def is_name(data: Bytes, at: int, length: int, node: int, nodes: Int64s, names: Bytes) -> bool:
    """Return whether these bytes are the name of a node."""
    if nodes[node, LENGTH] != length or eight_bytes(data, at) & nodes[node, MASK] != nodes[node, WORD]:
        return False
    for i in range(8, length):
        if byte(data, at + i) != byte(names, nodes[node, NAME] + i):
            return False
    return True


@inlined
def find_child(data: Bytes, at: int, length: int, node: int, nodes: Int64s, names: Bytes) -> int:
    """Return the child with this name, or ``_OTHER``."""
    first = nodes[node, FIRST_CHILD]
    for child in range(first, first + nodes[node, CHILDREN]):
        if is_name(data, at, length, child, nodes, names):
            return child
    return _OTHER


@inlined
def read_name(
    data: Bytes, at: int, node: int, guess: int, nodes: Int64s, names: Bytes, scratch: Bytes
) -> tuple[int, int]:
    """Return the position behind the name whose first character is at ``at``, and the child of the node, or ``_OTHER``.

    ``guess``: the child to try first.
    """
    length = nodes[guess, LENGTH]
    if (
        byte(data, at + length) == QUOTE
        and is_name(data, at, length, guess, nodes, names)
        and nodes[guess, ESCAPED] == 0
        and nodes[guess, PARENT] == node
    ):
        return at + length + 1, guess
    behind, escaped = skip_string(data, at)
    if behind < 0:
        return INVALID, _OTHER
    if not escaped:
        return behind, find_child(data, at, behind - 1 - at, node, nodes, names)
    if behind - 1 - at > len(scratch) - PAD:
        return behind, _OTHER  # longer than any name on a path
    end = unescape(data, at, behind - 1, scratch, 0)
    return behind, find_child(scratch, 0, end, node, nodes, names)


@inlined
def walk_record(
    data: Bytes,
    end: int,
    begin: int,
    row: int,
    nodes: Int64s,
    names: Bytes,
    scratch: Bytes,
    guesses: Int64s,
    seen: Int64s,
    max_depth: int,
    only_declared: bool,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
    resolved: Bytes,
    resolved_end: Int64s,
    items: Int64s,
    items_end: Int64s,
) -> bool:
    """Read the fields of the record from 0 to ``end``; return False if the reference has to decide on it.

    If the root of the tree is no object, the record is the value of the one field.

    ``seen``: by node, the number behind that of the last row that had it. ``only_declared``: whether a name at the top
    that is not in the tree is an error. ``read_field`` describes the others.
    """
    at = skip_space(data, 0)
    if nodes[0, KIND] != OBJECT:
        at = read_field(
            data,
            at,
            0,
            begin,
            row,
            nodes,
            values,
            lengths,
            found,
            resolved,
            resolved_end,
            items,
            items_end,
            0,
            max_depth,
        )
        return at >= 0 and skip_space(data, at) == end
    if byte(data, at) != OPEN_OBJECT:
        return False
    node, depth, before, guess = 0, 1, _OTHER, guesses[0, FIRST]
    opened = True
    while True:
        # Behind the bracket that opens the node's object, or behind a comma in it.
        at = skip_space(data, at + 1)
        if byte(data, at) == QUOTE:
            at, child = read_name(data, at + 1, node, guess, nodes, names, scratch)
            if at < 0 or (child < 0 and only_declared and node == 0):
                return False
            if child >= 0:
                if seen[child] == row + 1:
                    return False
                seen[child] = row + 1
                if before < 0:
                    guesses[node, FIRST] = child
                else:
                    guesses[before, NEXT] = child
                before, guess = child, guesses[child, NEXT]
            at = skip_colon(data, at)
            if at < 0:
                return False
            if child < 0:
                at = skip_value(data, at, depth, max_depth)
            elif nodes[child, KIND] != OBJECT:
                at = read_field(
                    data,
                    at,
                    child,
                    begin,
                    row,
                    nodes,
                    values,
                    lengths,
                    found,
                    resolved,
                    resolved_end,
                    items,
                    items_end,
                    depth,
                    max_depth,
                )
            elif byte(data, at) == OPEN_OBJECT:
                depth += 1
                if depth > max_depth:
                    return False
                node, before, guess = child, _OTHER, guesses[child, FIRST]
                opened = True
                continue
            elif byte(data, at) == _LETTER_N:
                at = skip_literal(data, at)
            else:
                return False
            if at < 0:
                return False
        elif not opened or byte(data, at) != CLOSE_OBJECT:
            return False
        while True:
            at = skip_space(data, at)
            char = byte(data, at)
            if char == COMMA:
                opened = False
                break
            if char != CLOSE_OBJECT:
                return False
            at += 1
            if node == 0:
                return skip_space(data, at) == end
            depth -= 1
            before, guess, node = node, guesses[node, NEXT], nodes[node, PARENT]
