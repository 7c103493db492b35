"""The description of an operator of Spark is changed or names a file that is not there: the file is named.

Files that Spark has really written are damaged in ``tests/faults/test_damaged_spark_files.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamcore.checkpoint.spark_files import find_log_damage

OPERATOR = "state/0"
DESCRIPTION = f"{OPERATOR}/_metadata/v2/0"
SCHEMA = f"{OPERATOR}/_stateSchema/default/0_1f"


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """Write the logs and the description of an operator after one batch."""
    paths = [f"file:{tmp_path}/{SCHEMA}"]
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2, "stateSchemaFilePaths": paths}
    documents = {
        "metadata": json.dumps({"id": "1"}),
        "offsets/0": 'v1\n{"batchWatermarkMs":0}\n-',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        DESCRIPTION: "v2\n" + json.dumps({"stateStoreInfo": [store]}, separators=(",", ":")),
        SCHEMA: "v3\n{}",
    }
    for name, text in documents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_whole_files_are_no_damage(spark: Path) -> None:
    assert find_log_damage(spark) == []


@pytest.mark.parametrize("part", ["_stateSchema", "file:/"])
def test_a_description_with_a_changed_path_is_named(part: str, spark: Path) -> None:
    file = spark / DESCRIPTION
    file.write_text(file.read_text().replace(part, f"{part}~"))
    (found,) = find_log_damage(spark)
    assert found.startswith(f"{DESCRIPTION} names ")
    assert found.endswith(", which is missing")


def test_a_missing_schema_is_named(spark: Path) -> None:
    (spark / SCHEMA).unlink()
    assert find_log_damage(spark) == [f"{SCHEMA} is missing"]
