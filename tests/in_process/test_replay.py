"""Output is a pure function of a cut and the state before it: run again from stored state, it is the same bytes."""

from __future__ import annotations

import copy
from pathlib import Path

from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules

PER_CUT = 300
CUTS = 12


def test_a_cut_that_runs_again_in_a_new_process_gives_the_same_records_in_the_same_order(tmp_path: Path) -> None:
    app = build_app(RulesSettings.model_validate(settings(tmp_path)))
    events = orders.orders(PER_CUT * CUTS, seed=51, step_ms=400)
    control = [control_record(n, rule.id, rule.value) for n, rule in enumerate(rules.all_kinds())]
    first, written = InProcessApp(app), 0
    for cut in range(CUTS):
        part = range(PER_CUT * cut, PER_CUT * (cut + 1))
        records = [RawRecord(0, events[n].partition, n, events[n].value) for n in part]
        clock_ms = orders.START_MS + orders.DAY_MS + cut
        before = copy.deepcopy(first.blobs)
        output = first.cut(control + records, clock_ms)
        assert InProcessApp(app, before).cut(control + records, clock_ms, tasks=3) == output
        control, written = [], written + len(output)
    assert written > CUTS * 10, "there was something to compare"


def settings(folder: Path) -> dict[str, object]:
    return {
        "app": "replay",
        "kafka": {"bootstrap": "nowhere:1"},
        "streams": [{"schema_file": str(orders.write_streams(folder)[0]), "topic": "orders"}],
        "checkpoint": str(folder),
        "jars": str(folder),
        "shards": 2,
    }
