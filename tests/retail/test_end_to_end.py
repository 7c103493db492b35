"""Real invoice lines through all of it (`headgate replay`, the shipped rules, Kafka, Spark) give the oracle's alerts.

The lines are those of `tests/data`, or of the file that `HEADGATE_RETAIL` names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_rules.service import SERVICE
from headgate_rules.settings import RulesSettings
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import ensure_topics
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.oracles import retail_alerts as retail
from tests.harness.oracles.lane_reader import Outputs, check_transactions
from tests.retail.test_in_process import LINES, ROOT, read

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]
APP = "retail"
HEADGATE = Path(sys.executable).with_name("headgate")
LEAST_RULES = 6


def test_alerts_from_a_replay_of_real_lines_equal_the_oracle_row_for_row(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path
) -> None:
    lines = retail.lines(LINES)
    sent = headgate(kafka, "replay", str(LINES), "--stream", "retail", "--topic", "retail.lines", "--partitions", "1")
    assert sent["rows"] == lines
    document = settings(tmp_path, kafka, spark_jars, lines)
    ensure_topics(kafka, SERVICE.topics(RulesSettings.model_validate(document)))
    headgate(kafka, "rules", "publish", str(ROOT / "rules" / "retail"), "--app", APP, "--no-wait")

    with AppUnderTest(tmp_path, document) as app:
        app.start()
        app.wait_for_input(lines, limit_s=1_500)
        assert app.drain() == 0
        assert (app.events, app.lane("deadletters"), app.lane("late")) == (lines, 0, 0)
        watermark_ms = app.watermark_ms
    outputs = Outputs(kafka, APP)
    found = sorted((read(r.value or b"") for r in outputs.read("alerts")), key=retail.by_identity)
    assert found == retail.alerts(LINES, watermark_ms=watermark_ms)
    assert len({alert.rule for alert in found}) >= LEAST_RULES
    check_transactions(outputs)


def headgate(kafka: KafkaSettings, *command: str) -> dict[str, object]:
    """Run the real command and take its JSON."""
    whole = [str(HEADGATE), *command, "--bootstrap", kafka.bootstrap, "--streams", str(ROOT / "streams"), "-o", "json"]
    completed = subprocess.run(whole, capture_output=True, check=False, timeout=600)
    assert completed.returncode == 0, completed.stderr.decode()
    result = json.loads(completed.stdout)
    return result if isinstance(result, dict) else {}


def settings(folder: Path, kafka: KafkaSettings, jars: Path, lines: int) -> dict[str, object]:
    """Return settings that give about ten cuts, whatever the file."""
    return {
        "app": APP,
        "kafka": {"bootstrap": kafka.bootstrap},
        "streams": [{"schema_file": str(ROOT / "streams" / "retail.yaml"), "topic": "retail.lines"}],
        "checkpoint": str(folder / "checkpoint"),
        "jars": str(jars),
        "local_dir": str(folder / "spark"),
        "events_per_cut": lines // 10 + 1,
    }
