"""The automaton finds what ``in`` finds, compiled and not, with a large table and a small one."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from streamcore.decode.walk.literals import automaton
from streamcore.decode.walk.literals.automaton import Hits, LiteralAutomaton, LiteralTest

UNCOMPILED = "from libs.streamcore.tests.decode.walk import test_literals as t; print(t.digest(20))"


def found(seed: int, table: int | None = None) -> tuple[list[LiteralTest], list[bytes], list[set[int]]]:
    """Return tests, texts, and the tests that are true of each text."""
    draw = random.Random(seed)
    literals = [bytes(draw.choices(b"abc", k=draw.randint(1, 5))) for _ in range(draw.randint(1, 40))]
    tests = [LiteralTest(i, draw.randrange(4), one) for i, one in enumerate(literals)]
    texts = [bytes(draw.choices(b"abcd\xc3", k=draw.randint(0, 9))) for _ in range(50)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(automaton, "TABLE_SIZE", table or automaton.TABLE_SIZE)
        searching = LiteralAutomaton(tests, fold=False)
    places = np.cumsum([0, *map(len, texts)])
    hits = Hits(len(texts), len(tests))
    hits.found = hits.found[: len(tests)]  # so that it must grow
    searching.find(np.frombuffer(b"".join(texts), np.uint8), places[:-1].copy(), places[1:].copy(), hits)
    return tests, texts, [items(hits, row) for row in range(len(texts))]


def items(hits: Hits, row: int) -> set[int]:
    """Return the list of a row."""
    listed, item = set[int](), int(hits.heads[row])
    while item > 0:
        assert int(hits.found[item - 1, 1]) not in listed
        listed.add(int(hits.found[item - 1, 1]))
        item = int(hits.found[item - 1, 0])
    return listed


def digest(count: int) -> str:
    """Return the digest of what is found."""
    return hashlib.sha256(repr([[sorted(one) for one in found(seed)[2]] for seed in range(count)]).encode()).hexdigest()


@pytest.mark.parametrize("table", [None, 4, 64])
def test_it_finds_each_literal_at_its_place(table: int | None) -> None:
    for seed in range(60):
        tests, texts, listed = found(seed, table)
        for text, have in zip(texts, listed, strict=True):
            want = {
                t.number
                for t in tests
                if (t.literal in text, text.startswith(t.literal), text.endswith(t.literal), text == t.literal)[t.place]
            }
            assert have == want, (seed, text)


def test_it_reads_capitals_as_small_letters_if_it_folds() -> None:
    searching, hits = LiteralAutomaton([LiteralTest(0, automaton.ANYWHERE, b"abc")], fold=True), Hits(2, 1)
    data = np.frombuffer(b"xABcxAB@", np.uint8)
    searching.find(data, np.array([0, 5]), np.array([5, 8]), hits)
    assert [items(hits, row) for row in range(2)] == [{0}, set()]


def test_ten_thousand_long_literals_need_little_memory() -> None:
    draw = random.Random(1)
    tests = [LiteralTest(i, automaton.ANYWHERE, draw.randbytes(24)) for i in range(10_000)]
    assert LiteralAutomaton(tests, fold=False).size < 10_000_000


@pytest.mark.slow
def test_uncompiled_it_finds_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCOMPILED],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest(20)
