"""Sketches: close to the exact answer, and the same bytes in every process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from math import inf, nan, sqrt
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, ApproxDistinct, Partials, Quantiles
from streamcore.schema import EVENT_MS
from tests.harness.oracles.aggregates import COLUMNS, GROUPS, SCHEMA, elements, frames, group_partials, store_and_load

DATABASE = duckdb.connect(config={"threads": 1})
SHARES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
QUANTILES = Quantiles("real", SHARES)
#: Six standard errors.
DISTINCT_ERROR = 6 * 1.04 / sqrt(2**12)
#: The library publishes no bound: this is the bound that the documentation of ``Quantiles`` names.
RANK_ERROR = 0.02


def aggregate_one_group(aggregate: Aggregate, values: pl.Series) -> Partials:
    rows = pl.DataFrame({values.name: values, EVENT_MS: np.arange(len(values))})
    numbers = np.arange(len(values))
    return aggregate.aggregate_groups(rows, numbers, np.zeros(len(values), dtype=np.int64), 1)


def aggregate_in_pieces(aggregate: Aggregate, values: pl.Series, pieces: int) -> Partials:
    edges = np.linspace(0, len(values), pieces + 1).astype(int).tolist()
    parts = [store_and_load(aggregate, aggregate_one_group(aggregate, values[a:b])) for a, b in pairwise(edges)]
    return reduce(aggregate.merge, parts)


@settings(max_examples=100)
@given(data=st.data())
def test_few_distinct_values_of_any_type_are_counted_exactly(data: st.DataObject) -> None:
    aggregate = ApproxDistinct(data.draw(st.sampled_from(list(COLUMNS))))
    rows = data.draw(frames(aggregate.inputs))
    cut = data.draw(st.integers(0, rows.height))
    whole = group_partials(aggregate, rows)
    parts = [store_and_load(aggregate, group_partials(aggregate, piece)) for piece in (rows[cut:], rows[:cut])]
    for partials in (whole, reduce(aggregate.merge, parts)):
        result = aggregate.result(partials, SCHEMA)
        assert result.dtype == aggregate.check(SCHEMA)
        assert result.to_list() == [aggregate.reference(elements(rows, group)) for group in range(GROUPS)]


@pytest.mark.parametrize("different", [100, 3_000, 200_000])
def test_many_distinct_values_are_counted_within_the_published_error(different: int) -> None:
    values = pl.Series("whole", np.random.default_rng(different).permutation(np.arange(different)))
    (seen,) = ApproxDistinct("whole").result(aggregate_one_group(ApproxDistinct("whole"), values), SCHEMA)
    assert abs(seen - different) <= DISTINCT_ERROR * different


@given(st.integers(1, 9), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_a_distinct_count_depends_on_the_set_of_values_alone(pieces: int, random: object) -> None:
    values = pl.Series("whole", np.arange(5_000))
    aggregate = ApproxDistinct("whole")
    shuffled = values.sample(fraction=1.0, shuffle=True, seed=random.randrange(1000))  # type: ignore[attr-defined]
    again = pl.concat([shuffled, shuffled[:2_000]])
    wanted = aggregate.result(aggregate_one_group(aggregate, values), SCHEMA).to_list()
    assert aggregate.result(aggregate_in_pieces(aggregate, again, pieces), SCHEMA).to_list() == wanted


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], npt.NDArray[np.float64]]] = {
    "uniform": lambda random: random.random(30_000),
    "normal": lambda random: random.normal(size=30_000),
    "lognormal": lambda random: random.lognormal(sigma=3, size=30_000),
    "rising": lambda random: np.arange(30_000.0),
    "few": lambda random: random.integers(0, 5, 30_000).astype(float),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("pieces", [1, 10, 100])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_are_close_to_the_exact_ones_by_rank(name: str, pieces: int) -> None:
    values = DISTRIBUTIONS[name](np.random.default_rng(7))
    (seen,) = QUANTILES.result(aggregate_in_pieces(QUANTILES, pl.Series("real", values), pieces), SCHEMA).to_list()
    in_order = np.sort(values)
    below = np.searchsorted(in_order, seen, side="left") / len(values)
    upto = np.searchsorted(in_order, seen, side="right") / len(values)
    off = np.maximum(0, np.maximum(below - SHARES, np.array(SHARES) - upto))
    if name == "few":  # between two existing values a digest interpolates
        off = np.minimum(off, np.abs(np.round(seen) - seen))
    assert off.max() <= RANK_ERROR, dict(zip(SHARES, off.tolist(), strict=True))
    assert (seen[0], seen[-1]) == (values.min(), values.max())


def exact_quantiles(values: pl.DataFrame, pairs: list[tuple[float, float]]) -> list[tuple[float, float]]:
    shares = [share for pair in pairs for share in pair]
    with DATABASE.cursor() as cursor:
        cursor.register("rows", values)
        ((found,),) = cursor.execute(f"select quantile_disc(real, {shares}) from rows").fetchall()
    return list(zip(found[::2], found[1::2], strict=True))


@settings(max_examples=100)
@given(frames(["real"], max_size=30))
def test_quantiles_of_few_values_lie_between_neighbouring_quantiles_of_duckdb(rows: pl.DataFrame) -> None:
    seen = QUANTILES.result(group_partials(QUANTILES, rows), SCHEMA)
    assert seen.dtype == QUANTILES.check(SCHEMA)
    for group, quantiles in enumerate(seen.to_list()):
        values = rows.filter((pl.col("group") == group) & pl.col("real").is_not_null())
        if not values.height:
            assert quantiles is None
            assert QUANTILES.reference(elements(rows, group)) is None
            continue
        step = 1 / values.height
        around = [(max(0.0, share - step), min(1.0, share + step)) for share in SHARES]
        bounds = exact_quantiles(values, around)
        slack = 1e-9 * max(map(abs, values["real"]))
        assert all(low - slack <= q <= high + slack for q, (low, high) in zip(quantiles, bounds, strict=True))


def test_a_quantile_ignores_nan_and_keeps_infinity() -> None:
    aggregate = Quantiles("any_real", (0.0, 0.5, 1.0))
    some = aggregate_one_group(aggregate, pl.Series("any_real", [nan, None, -inf, 1.0, inf]))
    assert aggregate.result(some, SCHEMA).to_list() == [[-inf, 1.0, inf]]
    none = aggregate_one_group(aggregate, pl.Series("any_real", [nan, None]))
    assert aggregate.result(none, SCHEMA).to_list() == [None]


def digest() -> str:
    """Return a digest of the sketches of some rows and of their unions."""
    random = np.random.default_rng(3)
    columns: dict[str, Any] = {
        "whole": random.integers(0, 10_000, 20_000),
        "real": random.random(20_000),
        "text": [f"é{number}" for number in random.integers(0, 10_000, 20_000)],
    }
    found = hashlib.sha256()
    for aggregate in (ApproxDistinct("whole"), ApproxDistinct("text"), Quantiles("real", SHARES)):
        values = pl.Series(aggregate.inputs[0], columns[aggregate.inputs[0]])
        for partials in (aggregate_one_group(aggregate, values), aggregate_in_pieces(aggregate, values, 5)):
            found.update(partials["sketch"][0])
            found.update(repr(aggregate.result(partials, SCHEMA).to_list()).encode())
    return found.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_builds_the_same_sketches(seed: str) -> None:
    program = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('t', sys.argv[1]);"
        "m = u.module_from_spec(s); s.loader.exec_module(m); print(m.digest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", program, __file__], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == digest()
