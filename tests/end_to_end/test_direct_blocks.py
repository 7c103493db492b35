"""Spark's plan of an app whose events go around a stage: stage 1 runs once, and its shuffle is read twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PRINT_PLAN = """
import sys
from pathlib import Path
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.query import build_query
from streamcore.spark.session import SparkSettings, open_session
from streamcore.storage import LocalObjectStore
from tests.in_process.test_duplicates import new_app

folder, jars = Path(sys.argv[1]), Path(sys.argv[2])
session = open_session("plan", SparkSettings(jars))
for deduplicate in ("1m", None):
    print("plan of", deduplicate)
    app, kafka = new_app(folder, deduplicate), KafkaSettings("nowhere:1")
    build_query(session, app, kafka, 2, LocalObjectStore(folder)).explain()
session.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_stage_1_runs_once_and_what_it_sends_around_a_stage_is_shuffled_once(tmp_path: Path, spark_jars: Path) -> None:
    command = [sys.executable, "-c", PRINT_PLAN, str(tmp_path), str(spark_jars)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    _, around, plain = printed.split("plan of ")
    assert plain.count("MapInArrow") == 1
    assert "Union" not in plain
    assert around.count("MapInArrow") == 2, "stage 1, and the stage of ids"
    assert around.count("ReusedExchange") == 1
    assert around.count(" Exchange ") - around.count("ReusedExchange") == 2, "of stage 1, and of the verdicts"
    assert around.count("TransformWithState") == plain.count("TransformWithState") == 1, "two cost each cut much more"
