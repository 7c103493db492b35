"""One damaged file of Spark or of a keyed stage in a checkpoint changes nothing, or the start names the file and the
savepoint to restore.

By default 4 damages, which are chosen by a seed; ``HEADGATE_DAMAGED_FILES`` sets another number.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conftest import NewTopic
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.session import SparkSettings
from tests.end_to_end.test_topology_on_spark import send, two_steps
from tests.harness.apps.damaged_checkpoints import Campaign, Outcome
from tests.harness.apps.scripted_cuts import Script

COUNT = int(os.environ.get("HEADGATE_DAMAGED_FILES", "4"))
SEED = int(os.environ.get("HEADGATE_DAMAGED_SEED", "1"))
LIMIT_S = 300 + 40 * COUNT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


def test_a_damaged_file_changes_no_output_or_the_error_names_it(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    topic = new_topic("sales")
    app = two_steps("damaged").app(topics={"sales": topic}, shards=2)
    # A worker that is used again has the state in memory and reads no file.
    spark = SparkSettings(spark_jars, extra={"spark.python.worker.reuse": "false"})
    script = Script(app, kafka, tmp_path / "checkpoint", spark, send(kafka, topic), saved="after-cut", restarts=3)
    whole, *damaged = Campaign(script, COUNT, SEED, "both").run(tmp_path, limit_s=LIMIT_S)
    assert not whole.error
    assert whole.records
    assert len(damaged) == COUNT
    wrong = [f"{one.damage}: {one.error or 'other records'}" for one in damaged if not is_safe(one, whole)]
    assert not wrong, "\n".join(wrong)


def is_safe(outcome: Outcome, whole: Outcome) -> bool:
    """Return whether the output equals that without damage, or one sentence names damaged file and savepoint."""
    if not outcome.error:
        return outcome.records == whole.records
    kind, _, sentence = outcome.error.partition(": ")
    file = outcome.damage.file.removeprefix("spark/")
    # Without checksums a change may be seen only where it leads to, as a state file that does not exist.
    named = outcome.damage.checksum or file in sentence or checked_file(file) in sentence
    one_sentence = "savepoint" in sentence and "\n" not in sentence
    return kind in ("CorruptState", "ConfigError") and named and one_sentence and not outcome.records


def checked_file(file: str) -> str:
    """Return the name of the file whose checksums are in this one."""
    path = Path(file)
    return str(path.parent / path.name.removeprefix(".").removesuffix(".crc"))
