"""Decisions of an app with several shards against loops over the events: outcome, score, rules and bytes."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import orjson
import pytest

from streamcore.wire.lanes import ALERTS, DECISIONS, SHADOW, STATUS
from tests.harness.oracles.decided_payments import LATER, LOGIN_POLICY, POLICY, events, fired_rules, judge, on, run


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 4))])
def test_each_decision_is_what_a_loop_decides(seed: int) -> None:
    history = events(random.Random(seed), 240)
    output = run(history, size=41 + 9 * seed)
    assert {(s["subject"], s["status"]) for s in on(output, STATUS)} == {
        ("rule", "accepted"),
        ("decision_policy", "accepted"),
    }
    found = {(d["source"]["topic"], d["source"]["offset"]): d for d in on(output, DECISIONS)}
    assert len(found) == len(on(output, DECISIONS)), "one for each event"
    offsets, half, causes = Counter[int](), len(history) // 2, Counter[str]()
    for number, ((source, event), names) in enumerate(zip(history, fired_rules(history), strict=True)):
        place = (("pay-topic", "login-topic")[source], offsets[source])
        offsets[source] += 1
        policy = LOGIN_POLICY if source else POLICY if number < half else LATER
        decision = found.pop(place, None)
        if not names and decision is None:
            assert policy is not POLICY or not 100 <= event["amount"] <= 160
            continue
        assert decision is not None, f"{event} fired {names}"
        assert (decision["outcome"], decision["score"], decision["band"]) == judge(policy, names)
        assert [one["rule"] for one in decision["shadow"]] == [name for name in names if name == "trial"]
        assert sorted(one["rule"] for one in decision["rules"]) == sorted(n for n in names if n != "trial")
        assert all(one["message"] == f"{one['rule']} fired" for one in decision["rules"])
        assert (decision["policy"], decision["version"]) == (policy["decision_policy"], policy["version"])
        assert decision["event_id"] == event.get("id")
        assert decision["key"] == {name: event[name] for name in ("user", "card") if name in event}
        assert decision["event_time_ms"] == event["at"]
        identity = [policy["decision_policy"], policy["version"], place[0], 0, place[1]]
        assert decision["decision_id"] == hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()
        cause = "rules" if names else "where" if 100 <= event["amount"] <= 160 else "share"
        assert decision["cause"] == cause
        causes[cause] += 1
    assert found == {}
    assert {"where", "share"} & causes.keys(), "events without a rule"


@pytest.mark.slow
def test_alerts_and_decisions_name_each_other() -> None:
    output = run(events(random.Random(3), 200), size=40)
    decisions = {d["decision_id"]: d for d in on(output, DECISIONS)}
    entries = {e["alert_id"]: (d, e) for d in decisions.values() for e in (*d["rules"], *d["shadow"])}
    alerts = [alert for lane in (ALERTS, SHADOW) for alert in on(output, lane)]
    for alert in alerts:
        if alert["rule"] in ("late-window", "in-order"):
            assert "decision_id" not in alert, "it fires at the watermark"
            continue
        decision, entry = entries.pop(alert["alert_id"])
        assert alert["decision_id"] == decision["decision_id"]
        assert decision["rules_epoch"] == alert["rules_epoch"]
        assert entry["values"] == alert["values"]
        assert entry["alert"] == "sent"
    names = {alert["rule"] for alert in alerts if alert["values"]}
    assert {"known", "by-card", "late-window", "in-order"} <= names
    left = Counter((entry["rule"], entry["alert"]) for _, entry in entries.values())
    assert {rule for rule, _ in left} == {"quiet", "once"}, "alerts that were not sent still count"
    assert left["quiet", "none"] > 0
    assert left["once", "suppressed"] > 0


@pytest.mark.slow
def test_decisions_depend_neither_on_shards_nor_on_cuts() -> None:
    history = events(random.Random(4), 120)
    runs = [run(history, size, shards) for size, shards in ((60, 1), (17, 3))]
    first, second = ({r.key: r.value for r in output if r.lane == DECISIONS} for output in runs)
    assert first == second
    assert len(first) > 40
