"""Finds all literals in all texts of a column: the automaton of Aho and Corasick (1975), over bytes.

The states are those of the trie of the literals, numbered by their distance from the root, then in the order of the
literals; so the children of a state have consecutive numbers. The first states, in which a text is nearly always, are
rows of a table with a target for each class of bytes. The others have only their children and a state to fall back to,
so the memory grows with the literals, and not with literals times bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamcore.decode.walk.compiler import entry, inlined
from streamcore.decode.walk.words import Bytes, byte

Ints = npt.NDArray[np.int64]
States = npt.NDArray[np.int32]
Pairs = npt.NDArray[np.int32]  # of two columns or more

#: Where a literal must be in the text.
ANYWHERE, START, END, WHOLE = range(4)
#: The targets of a table: of 32 bits each, so that the busy ones fit a processor's cache.
TABLE_SIZE = 2**19
#: Rows that are searched at once: so few that what was found of them fits a cache, too.
ROWS = 16_384


@entry(
    "int64(Array(uint8, 1, 'C', readonly=True), int64[::1], uint8[::1], int32[::1], uint8[::1], int32[::1], int32[::1],"
    " int32[::1])"
)
def make_trie(
    data: Bytes,
    starts: Ints,
    classes: Bytes,
    parents: States,
    labels: Bytes,
    depths: States,
    ends: States,
    path: States,
) -> int:
    """Write the states of the trie of sorted literals, in the order of the literals; return their number.

    ``starts``: where each literal starts in ``data``, and where the last one ends. ``parents``, ``labels`` (classes)
    and ``depths`` are of a state, of which 0 is the root; ``ends``: the state of each literal. ``path``: room for the
    states of one literal and the root.
    """
    states = 1
    path[0] = 0
    for literal in range(len(ends)):
        start = starts[literal]
        size = starts[literal + 1] - start
        shared = 0
        if literal > 0:
            before = starts[literal - 1]
            most = min(size, start - before)
            while shared < most and byte(data, start + shared) == byte(data, before + shared):
                shared += 1
        for depth in range(shared, size):
            parents[states] = path[depth]
            labels[states] = classes[byte(data, start + depth)]
            depths[states] = depth + 1
            path[depth + 1] = states
            states += 1
        ends[literal] = path[size]
    return states


@inlined
def _child(first: States, labels: Bytes, state: int, label: int) -> int:
    """Return the child of a state with this label, -1 without one."""
    child, end = int(first[state]), int(first[state + 1])
    while child < end and byte(labels, child) < label:
        child += 1
    return child if child < end and byte(labels, child) == label else -1


@entry("void(int32[::1], uint8[::1], int32[::1], int32[::1], int32[::1], int64, int32[::1], int32[::1])")
def link_states(
    parents: States,
    labels: Bytes,
    first: States,
    fallback: States,
    table: States,
    bits: int,
    literal: States,
    link: States,
) -> None:
    """Write the state to fall back to of each state, the nearest one there that ends a literal, and the table.

    ``first``: the first child of each state, then the number of states. ``literal``: the number of the literal that
    ends at a state, -1 if none does. ``table``: for each of the first states, ``2**bits`` targets by label.
    """
    rows = len(table) >> bits
    for state in range(len(parents)):
        found = -1
        if state > 0:
            label = byte(labels, state)
            at = int(fallback[parents[state]])
            found = 0
            while at >= 0:
                if at < rows:
                    found = int(table[(at << bits) + label])
                    break
                child = _child(first, labels, at, label)
                if child >= 0:
                    found = child
                    break
                at = int(fallback[at])
            link[state] = found if literal[found] >= 0 else link[found]
        fallback[state] = found
        if state < rows:
            row = state << bits
            if state > 0:
                for label in range(1 << bits):
                    table[row + label] = table[(found << bits) + label]
            for child in range(first[state], first[state + 1]):
                table[row + byte(labels, child)] = child


@entry(
    "int64(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], int64, int64, uint8[::1], int32[::1], int64,"
    " uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[:, ::1], int64, int64[::1],"
    " int32[::1], int32[:, ::1], int64[::1])"
)
def find_literals(
    data: Bytes,
    begins: Ints,
    ends: Ints,
    row: int,
    mark: int,
    classes: Bytes,
    table: States,
    bits: int,
    labels: Bytes,
    first: States,
    fallback: States,
    literal: States,
    link: States,
    uses_at: States,
    uses: Pairs,
    most: int,
    seen: Ints,
    heads: States,
    found: Pairs,
    count: Ints,
) -> int:
    """Add the tests that are true of each text to the list of its row; return the row at which there is no room left.

    ``begins``, ``ends``: the place of each text in ``data``. ``row``: the first row to search. ``uses``: of each
    literal, the tests that it decides: number, place, length. ``most``: the number of tests, thus the most that one
    row adds. ``seen``: of each test, ``mark`` plus the last row of which it was true. ``heads``: of each row, the place
    of its last item in ``found`` plus one. ``found``: the place of the item before, plus one, and a test. ``count``:
    the number of items.
    """
    limit = (len(table) >> bits) << bits
    items = count[0]
    while row < len(begins):
        if items + most > len(found):
            break
        at, stop, start = begins[row], ends[row], begins[row]
        marked = mark + row
        state, target = 0, 0
        while at < stop:
            label = byte(classes, byte(data, at))
            at += 1
            if state < limit:
                target = int(table[state + label])
            else:
                place = state >> bits
                while True:
                    child = _child(first, labels, place, label)
                    if child >= 0:
                        target = child << bits
                        if literal[child] >= 0 or link[child] >= 0:
                            target = -1 - target
                        break
                    place = int(fallback[place])
                    if place << bits < limit:
                        target = int(table[(place << bits) + label])
                        break
            if target >= 0:
                state = target
                continue
            state = -1 - target
            place = state >> bits
            while place >= 0:
                number = int(literal[place])
                if number >= 0:
                    for use in range(uses_at[number], uses_at[number + 1]):
                        test, where = int(uses[use, 0]), int(uses[use, 1])
                        if seen[test] == marked:
                            continue
                        starts = where == ANYWHERE or where == END or at - start == uses[use, 2]
                        if starts and (where == ANYWHERE or where == START or at == stop):
                            seen[test] = marked
                            found[items, 0] = heads[row]
                            found[items, 1] = test
                            items += 1
                            heads[row] = items
                place = int(link[place])
        row += 1
    count[0] = items
    return row


@dataclass(frozen=True, slots=True)
class LiteralTest:
    """A test of a text: whether a literal (not empty) is at a place. ``number``: among the tests of all columns."""

    number: int
    place: int
    literal: bytes


class LiteralAutomaton:
    """Finds the literals of one column. Immutable."""

    def __init__(self, tests: Sequence[LiteralTest], *, fold: bool) -> None:
        """Build the automaton. ``fold``: read capital ASCII letters as small ones; no literal may have any."""
        by_literal: dict[bytes, list[LiteralTest]] = {}
        for test in tests:
            by_literal.setdefault(test.literal, []).append(test)
        literals = sorted(by_literal)
        used = [test for literal in literals for test in by_literal[literal]]
        self._uses = np.array([(t.number, t.place, len(t.literal)) for t in used], np.int32)
        self._uses_at = _starts([len(by_literal[literal]) for literal in literals]).astype(np.int32)
        data = np.frombuffer(b"".join(literals), np.uint8)
        bytes_used = np.unique(data)
        self._classes = np.zeros(256, np.uint8)
        self._classes[bytes_used] = np.arange(1, len(bytes_used) + 1)
        if fold:
            self._classes[0x41:0x5B] = self._classes[0x61:0x7B]
        self._bits = len(bytes_used).bit_length()
        parents, labels, ends = self._trie(data, literals)
        states = len(parents)
        self._labels = labels
        self._first = (_starts(np.bincount(parents[1:], minlength=states).tolist()) + 1).astype(np.int32)
        self._literal = np.full(states, -1, np.int32)
        self._literal[ends] = np.arange(len(literals))
        self._link, self._fallback = np.full(states, -1, np.int32), np.zeros(states, np.int32)
        targets = np.zeros(min(states, max(1, TABLE_SIZE >> self._bits)) << self._bits, np.int32)
        link_states(parents, labels, self._first, self._fallback, targets, self._bits, self._literal, self._link)
        reports = (self._literal >= 0) | (self._link >= 0)
        shifted = targets << self._bits
        self._table = np.where(reports[targets], -1 - shifted, shifted).astype(np.int32)

    def _trie(self, data: Bytes, literals: Sequence[bytes]) -> tuple[States, Bytes, States]:
        """Return the parent and the label of each state, by distance from the root, and the state of each literal."""
        starts = _starts([len(literal) for literal in literals])
        size = len(data) + 1
        parents, depths = np.zeros(size, np.int32), np.zeros(size, np.int32)
        labels, ends = np.zeros(size, np.uint8), np.zeros(len(literals), np.int32)
        path = np.zeros(max(map(len, literals), default=0) + 1, np.int32)
        states = make_trie(data, starts, self._classes, parents, labels, depths, ends, path)
        order = np.argsort(depths[:states], kind="stable")
        number = np.empty(states, np.int32)
        number[order] = np.arange(states)
        return number[parents[order]], np.ascontiguousarray(labels[order]), number[ends]

    @property
    def size(self) -> int:
        """The bytes of the tables."""
        return sum(
            one.nbytes
            for one in (self._table, self._labels, self._first, self._literal, self._link, self._fallback, self._uses)
        )

    def find(self, data: Bytes, begins: Ints, ends: Ints, hits: Hits) -> None:
        """Add what is found in the texts, one for each row of ``hits``."""
        row = 0
        while row < len(begins):
            row = find_literals(
                data, begins, ends, row, hits.mark, self._classes, self._table, self._bits, self._labels, self._first,
                self._fallback, self._literal, self._link, self._uses_at, self._uses, len(self._uses), hits.seen,
                hits.heads, hits.found, hits.count,
            )  # fmt: skip
            if row < len(begins):
                hits.grow(len(self._uses))


class Hits:
    """The tests that are true of each row: lists in one array (``find_literals`` says how)."""

    def __init__(self, rows: int, tests: int) -> None:
        self.heads = np.zeros(rows, np.int32)
        self.found = np.empty((8 * rows + 64, 2), np.int32)
        self.count = np.zeros(1, np.int64)
        self.seen = np.zeros(tests, np.int64)
        self.mark = 1

    def grow(self, most: int) -> None:
        """Make room for the items of at least one more row."""
        more = np.empty((2 * len(self.found) + most, 2), np.int32)
        more[: self.count[0]] = self.found[: self.count[0]]
        self.found = more


def _starts(sizes: Sequence[int]) -> Ints:
    """Return where each of some things behind each other starts, and where the last one ends."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
