"""SIGKILL at random moments and at the worst ones: every alert is there once, and a reader never sees anything else.

``HEADGATE_KILLS`` random kills (0; `make kill-test`: 20), after two at points of the protocol and one of the JVM.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from streamcore.kafka.data_clients import Isolation
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Order
from tests.harness.apps.rules_scene import Scene
from tests.harness.faults.faulty_app import read_attempts
from tests.harness.oracles import iceberg_files
from tests.harness.oracles.lane_reader import LANES, check_transactions
from tests.harness.oracles.lane_watcher import Watcher
from tests.harness.oracles.parquet_notes import counted_files
from tests.harness.oracles.replayed_cuts import replay
from tests.harness.oracles.rule_alerts import Oracle, RuleUnderTest

KILLS = int(os.environ.get("HEADGATE_KILLS", "0"))
PER_CUT = 500
#: The lanes that sinks take as rows, with the column of their keys.
ROWS = {"alerts": "alert_id", "decisions": "decision_id"}
FUTURE_MS = 300_000  # the app's limit, by its default

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900 + 120 * KILLS)]


def test_kills_at_any_moment_neither_lose_nor_repeat_alerts_and_no_reader_sees_part_of_a_cut(
    new_app: NewApp, tmp_path: Path
) -> None:
    scene = new_app("kills", events_per_cut=PER_CUT, **sinks(tmp_path))
    expected = [scored(rule, 10 * number) for number, rule in enumerate(rules.all_kinds(), 1)]
    scene.publish(*expected)
    scene.control(policy(1, {"review": 20, "block": 45}))
    scene.send(orders.orders(PER_CUT * (10 + 3 * KILLS), seed=31))
    with scene.app, Watcher(scene.outputs) as watcher:
        die_before_the_commit(scene)
        watcher.count_while_dead()
        die_between_the_commit_and_sparks(scene)
        watcher.count_while_dead()
        scene.control(policy(2, {"review": 35}))
        kill_the_jvm(scene)
        kill_at_random(scene, watcher, random.Random(KILLS))
        scene.start_faulty()
        scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
        scene.settle()
        assert scene.app.drain() == 0
        watcher.check()
    scene.check_against(expected)
    scene.check_counts()
    check_transactions(scene.outputs)
    check_replays(scene)
    check_decisions(scene, expected)
    check_sinks(scene, tmp_path)


def scored(rule: RuleUnderTest, score: int) -> RuleUnderTest:
    """Return the rule with a score, and an outcome that no band has."""
    then = rule.document["then"]
    assert isinstance(then, dict)
    return replace(rule, document={**rule.document, "then": {**then, "score": score, "outcome": "allow"}})


def policy(version: int, bands: Mapping[str, int]) -> tuple[str, bytes]:
    """Return the control record of the decision policy of ``orders``."""
    decide = {"order": ["block", "review", "allow"], "default": "allow", "bands": bands}
    document = {"decision_policy": "orders", "version": version, "owner": "tests", "on": "orders", "decide": decide}
    return "decision-policy/orders", json.dumps(document).encode()


def check_decisions(scene: Scene, expected: Sequence[RuleUnderTest]) -> None:
    """Check that each event at which rules fired has one decision, by these rules, and that the log gives its bytes."""
    fired: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for alert in Oracle(expected).run(scene.sent):
        if isinstance(source := alert["source"], dict):
            fired[tuple(source.values())].append(str(alert["rule"]))
    scores = {rule.id: 10 * number for number, rule in enumerate(expected, 1)}
    records = scene.outputs.read("decisions")
    versions, outcomes = set(), set()
    for record in records:
        decision: dict[str, Any] = json.loads(record.value or b"")
        names = fired.pop(tuple(decision["source"].values()))
        score = sum(scores[name] for name in names)
        bands = {"block": 45, "review": 20} if decision["version"] == 1 else {"review": 35}
        assert sorted(one["rule"] for one in decision["rules"]) == sorted(names)
        assert decision["score"] == score
        assert decision["outcome"] == next((name for name, least in bands.items() if score >= least), "allow")
        versions.add(decision["version"])
        outcomes.add(decision["outcome"])
    assert fired == {}, "each event has its decision"
    assert versions == {1, 2}
    assert outcomes == {"allow", "review", "block"}
    for lane in ("decisions", "alerts"):
        again = [(one.key, one.value) for one in replay(scene) if one.lane == lane]
        assert sorted(again) == sorted((record.key, record.value) for record in scene.outputs.read(lane))


def sinks(lake: Path) -> dict[str, object]:
    """Return settings of two sinks that take alerts and decisions."""
    catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}
    return {
        "iceberg": {
            "catalog": {"options": catalog},
            "tables": {f"{lane}_table": {"table": f"risk.{lane}"} for lane in ROWS},
        },
        "parquet": {"tables": {f"{lane}_table": {"uri": str(lake / lane)} for lane in ROWS}},
    }


def check_sinks(scene: Scene, lake: Path) -> None:
    """Check that each sink has the alerts and the decisions of the topics, each once."""
    for lane, key in ROWS.items():
        expected = sorted((record.key or b"").decode() for record in scene.outputs.read(lane))
        assert expected
        files = [str(file) for file in iceberg_files.live_files(lake, f"risk.{lane}")]
        for found in (files, counted_files(lake / lane)):
            assert sorted(pl.read_parquet(found, columns=[key])[key]) == expected


def die_before_the_commit(scene: Scene) -> None:
    """Kill the app before it commits a batch whose output depends on its clock.

    Events that are a little too far in the future are dead letters; with a later clock some of them would be events.
    """
    scene.start_faulty("--die", "before_commit", "--when", "deadletters")
    scene.app.wait_for_cuts(2)
    now_ms = time.time_ns() // 1_000_000
    ahead = [Order(n, now_ms + FUTURE_MS + 2_000 * n, "ahead", "view") for n in range(1, 60)]
    scene.send_raw(scene.probe_topic, [(None, order.value) for order in ahead])
    assert scene.app.wait_for_end() < 0, "it died by the signal"


def die_between_the_commit_and_sparks(scene: Scene) -> None:
    """Kill the app after the output of a batch is in Kafka and before Spark commits the batch."""
    scene.start_faulty("--die", "committed", "--when", "alerts")
    assert scene.app.wait_for_end() < 0, "it died by the signal"


def kill_the_jvm(scene: Scene) -> None:
    """Kill the JVM of Spark: the driver ends with one sentence that names it."""
    scene.start_faulty()
    scene.app.wait_for_cuts(1)
    before = len(scene.app.log.read_text())
    pid = scene.app.kill_jvm()
    assert scene.app.wait_for_end() == 1
    text = scene.app.log.read_text()[before:]
    assert "Traceback" not in text, "the noise of libraries is kept out"
    assert f"Permanent: the JVM of Spark (process {pid}) ended: signal 9" in text.splitlines()[-1]


def kill_at_random(scene: Scene, watcher: Watcher, chance: random.Random) -> None:
    """Kill the driver alone or all processes of the app, in turns, sometimes during its start.

    After a kill of the driver alone the next start follows at once, beside what the last one left.
    """
    for number in range(KILLS):
        scene.start_faulty()
        if number % 5 == 4:
            time.sleep(chance.uniform(2, 15))
        else:
            scene.app.wait_for_cuts(chance.randrange(1, 4))
            time.sleep(chance.uniform(0, 1.5))
        if number % 2:
            scene.app.kill()
            watcher.count_while_dead()
        else:
            scene.app.kill_driver()


def check_replays(scene: Scene) -> None:
    """Check that batches ran twice, that one was skipped as written before, and that all attempts have equal bytes."""
    attempts = read_attempts(scene.capture)
    repeated = [batch for batch, texts in attempts.items() if len(texts) > 1]
    assert repeated, "batches with output ran again"
    assert [b for b in repeated if len(set(attempts[b])) > 1] == [], "the same bytes, in the same order"
    assert "skipped" in {cut.outcome for cut in scene.app.reported_cuts}
    letters = [batch for batch in repeated if f"{scene.app.name}.deadletters" in attempts[batch][0]]
    assert letters, "among them the batch whose output depends on the clock"
    sizes = {how: sum(len(scene.outputs.read(lane, how)) for lane in LANES) for how in Isolation}
    assert sizes[Isolation.UNCOMMITTED] > sizes[Isolation.COMMITTED], "there were records of aborted transactions"
