"""Spark's plan of an app, also of one whose events go around a stage: stage 1 runs once, and its shuffle is read twice.
The optimizer tries none of its rules on it that a session may leave out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamcore.spark.session import excluded_rules

PRINT_PLAN = """
import sys
from pathlib import Path
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.query import build_query
from streamcore.spark.session import SparkSettings, open_session
from tests.in_process.test_duplicates import new_app

def each(values):
    values = values.iterator()
    while values.hasNext():
        yield values.next()

folder, jars = Path(sys.argv[1]), Path(sys.argv[2])
session = open_session("plan", SparkSettings(jars))
optimizer = session._jsparkSession.sessionState().optimizer()
rules = {rule.ruleName() for batch in each(optimizer.defaultBatches()) for rule in each(batch.rules())}
print(*sorted(rules.difference(each(optimizer.nonExcludableRules()))))
for deduplicate in ("1m", None):
    print("plan of", deduplicate)
    build_query(session, new_app(folder, deduplicate), KafkaSettings("nowhere:1"), 2).explain()
session.stop()
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory, spark_jars: Path) -> list[str]:
    """The rules that Spark lets a session leave out, and the plans of two apps."""
    command = [sys.executable, "-c", PRINT_PLAN, str(tmp_path_factory.mktemp("plan")), str(spark_jars)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.split("plan of ")


@pytest.mark.spark
@pytest.mark.slow
def test_stage_1_runs_once_and_what_it_sends_around_a_stage_is_shuffled_once(printed: list[str]) -> None:
    _, around, plain = printed
    assert plain.count("MapInArrow") == 1
    assert "Union" not in plain
    assert around.count("MapInArrow") == 1
    assert around.count("ReusedExchange") == 1
    assert around.count(" Exchange ") - around.count("ReusedExchange") == 2, "of stage 1, and of the verdicts"
    assert around.count("TransformWithState") >= 2


@pytest.mark.spark
@pytest.mark.slow
def test_the_rules_left_out_are_those_that_this_version_of_spark_lets_a_session_leave_out(printed: list[str]) -> None:
    assert sorted(excluded_rules()) == printed[0].split("\n")[-2].split()
