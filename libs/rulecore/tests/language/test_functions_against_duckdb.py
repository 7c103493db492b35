"""Every function and operator gives the value that DuckDB gives, if ``tests.harness.oracles.duckdb_sql`` translates it.

``HEADGATE_EXPRESSIONS`` so many expressions on 40 rows each (`make nightly`: 20,000).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from decimal import Decimal
from random import Random

import duckdb
import pytest

from rulecore.errors import ExpressionError
from rulecore.language import evaluate, parse
from rulecore.language.functions import FUNCTIONS
from rulecore.language.text_signatures import TEXT_FUNCTIONS
from rulecore.language.time_signatures import TIME_FUNCTIONS
from rulecore.language.types import Value
from streamcore.schema import TIMESTAMP
from tests.harness.oracles.duckdb_sql import COLUMNS, DIFFERENCES, MAKERS, SCOPE, TABLE, Both, Pairs, row
from tests.harness.run import profiles

EXPRESSIONS = int(os.environ.get("HEADGATE_EXPRESSIONS", "800"))
TOGETHER = 50
ROWS = 40
#: The tolerance for transcendental functions, and for sums of doubles in another order.
CLOSE = 1e-14

pytestmark = pytest.mark.timeout(300 + EXPRESSIONS // 10)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute(TABLE)
        yield connection


def fill_table(database: duckdb.DuckDBPyConnection, rows: Sequence[dict[str, Value]]) -> None:
    """Replace the rows of the table by these."""
    database.execute("delete from events")
    places = ", ".join("make_timestamp(?::bigint * 1000)" if kind == TIMESTAMP else "?" for kind in COLUMNS.values())
    values = [value for i, one in enumerate(rows) for value in (i, *(one[name] for name in COLUMNS))]
    database.execute(f"insert into events values {', '.join([f'(?, {places})'] * len(rows))}", values)


def same(ours: Value, theirs: Value) -> bool:
    """Return whether both are equal and of one type; longs and decimals compare by value, doubles within ``CLOSE``."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return (math.isnan(ours) and math.isnan(theirs)) or math.isclose(ours, theirs, rel_tol=CLOSE)
    numbers = isinstance(ours, Decimal | int) and isinstance(theirs, Decimal | int)
    return ours == theirs and (numbers or type(ours) is type(theirs))


def check_pairs(database: duckdb.DuckDBPyConnection, pairs: Sequence[Both], rows: Sequence[dict[str, Value]]) -> int:
    """Compare the values of each pair on each row, and return their number."""
    fill_table(database, rows)
    trees = [parse(pair.ours, SCOPE, expect=None) for pair in pairs]
    selected = [f"epoch_ms({p.theirs})" if t.type == TIMESTAMP else p.theirs for p, t in zip(pairs, trees, strict=True)]
    answers = list(
        zip(*database.execute(f"select {', '.join(selected)} from events order by i").fetchall(), strict=True)
    )
    for pair, tree, theirs in zip(pairs, trees, answers, strict=True):
        for one, their in zip(rows, theirs, strict=True):
            our = evaluate(tree, one)
            shown = {name: value for name, value in one.items() if name in pair.ours}
            assert same(our, their), f"{pair.ours} on {shown}: {our!r} here, {their!r} there by {pair.theirs}"
    return len(pairs) * len(rows)


def is_accepted(pair: Both) -> bool:
    """Return whether the language accepts a generated expression; it may only be rejected for a limit."""
    try:
        parse(pair.ours, SCOPE, expect=None)
    except ExpressionError as error:
        if not any(part in error.message for part in _LIMITS):
            raise
        return False
    return True


_LIMITS = ("digits", "grow", "nodes", "bytes", "deep", "all results are null")
NAMES = [(kind, name) for kind, makers in MAKERS.items() for name in makers]


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize(("kind", "name"), NAMES, ids=[f"{name} -> {kind}" for kind, name in NAMES])
def test_one_function_gives_what_duckdb_gives(kind: str, name: str, database: duckdb.DuckDBPyConnection) -> None:
    pairs = Pairs(len(name))
    chosen = [pair for _ in range(12) if is_accepted(pair := MAKERS[kind][name](pairs, 0))]
    random = Random(name)
    rows = [row(random) for _ in range(profiles.cases(3 * ROWS))]
    assert check_pairs(database, chosen, rows) >= len(rows) > 0


@pytest.mark.slow
def test_nested_expressions_give_what_duckdb_gives(database: duckdb.DuckDBPyConnection) -> None:
    checked = compared = 0
    seed = 0
    while checked < EXPRESSIONS:
        seed += 1
        pairs, random = Pairs(seed), Random(seed)
        chosen = [pair for _ in range(TOGETHER) if is_accepted(pair := pairs.any(3)) and len(pair.theirs) < 20_000]
        compared += check_pairs(database, chosen, [row(random) for _ in range(ROWS)])
        checked += len(chosen)
    print(f"{checked} expressions, {compared} values")
    assert checked >= EXPRESSIONS


#: DuckDB has no type for addresses without a download; ``test_networks`` compares with Python's ``ipaddress``.
WITHOUT_PEER = {
    "cidr_match",
    # Spark's semantics: test_arrays_against_spark.py
    *("array", "map", "cardinality", "array_contains", "arrays_overlap", "element_at", "get"),
    *TEXT_FUNCTIONS,  # with those of times, in test_text_functions.py and test_functions_against_spark.py
    *(TIME_FUNCTIONS.keys() - {"hour", "minute", "dayofweek", "date_trunc", "to_timestamp", "to_utc_timestamp"}),
    *("map_keys", "map_values", "map_contains_key", "array_min", "array_max", "array_sum"),
}


def test_every_function_and_operator_is_compared() -> None:
    names = {name.split(" of ")[0] for makers in MAKERS.values() for name in makers}
    assert names >= FUNCTIONS.keys() - WITHOUT_PEER
    assert names >= {
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "and",
        "or",
        "not",
        "in",
        "between",
        "like",
        "is null",
        "case",
        "if",
    }


@pytest.mark.parametrize("name", DIFFERENCES)
def test_duckdb_still_differs_where_the_documentation_says_so(name: str, database: duckdb.DuckDBPyConnection) -> None:
    one = DIFFERENCES[name]
    fill_table(database, [dict.fromkeys(COLUMNS)])
    assert same(evaluate(parse(one.ours, SCOPE, expect=None), dict.fromkeys(COLUMNS)), one.our_value)
    query = f"select {one.theirs} from events"
    if one.raises:
        with pytest.raises(duckdb.Error):
            database.execute(query).fetchall()
    else:
        assert same(database.execute(query).fetchall()[0][0], one.their_value)
