"""A condition over earlier steps that raises puts its rule into quarantine, and takes nothing from other rules."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
import pytest

from rulecore import language as lang
from rulecore.factory import RulesFactory
from rulecore.language.types import Value
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS

T0 = 1_700_000_000_000
SCHEMA = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "amount": "decimal(12,2)"},
    }
)
CLOCK = T0 + 3_600_000


@pytest.fixture(autouse=True)
def _raise_for_a_condition_with_99(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = lang.evaluate

    def evaluate_or_raise(expr: lang.Expr, row: Mapping[str, Value]) -> object:
        if "99" in lang.render(expr):
            raise ArithmeticError(f"the amount is {row['amount']}")
        return evaluate(expr, row)

    monkeypatch.setattr(lang, "evaluate", evaluate_or_raise)


def document(rule_id: str, last: str) -> bytes:
    steps = [{"step": "a", "where": "kind = 'a'"}, {"step": "b", "where": f"kind = 'b' and {last}"}]
    then = {"severity": "high", "message": "m"}
    body = {"id": rule_id, "version": 1, "owner": "o", "on": "acts", "group_by": ["user"], "sequence": steps}
    return orjson.dumps(body | {"within": "1h", "then": then})


def records(text: str) -> list[RawRecord]:
    """Return events, written as user, kind and amount, one each second, and one that moves the watermark."""
    found = []
    for n, word in enumerate([*text.split(), "zz0"]):
        user, kind, amount = word[0], word[1], word[2:]
        event = {"ts": T0 + 1_000 * n + 600_000 * (user == "z"), "user": user, "kind": kind, "amount": amount}
        found.append(RawRecord(0, 0, n, orjson.dumps(event)))
    return found


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("restart", [False, True])
def test_the_rule_goes_into_quarantine_and_other_rules_keep_their_matches(*, restart: bool) -> None:
    kernel = RulesFactory((RuleStream(SCHEMA, "acts"),))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=0)
    spec = App("t", (Source(SCHEMA, "acts"),), "control", {}, (kernel,), watermark=watermark)
    app = InProcessApp(spec)
    rules = {
        "bad": document("bad", "amount + 99 > a.amount"),
        "twin": document("twin", "amount + 99 > a.amount"),
        "good": document("good", "amount > a.amount"),
        "plain": document("plain", "amount >= 0"),
    }
    out = app.cut([control_record(n, name, rule) for n, (name, rule) in enumerate(rules.items())], CLOCK)
    events = records("ua1 va1 ub7 vb8 ua1 ub2")
    for cut in (events[:2], events[2:], []):
        if restart:
            app = InProcessApp(spec, app.blobs, next_offsets=app.next_offsets)
        out += app.cut(cut, CLOCK)
    statuses = [orjson.loads(r.value or b"") for r in out if r.lane == STATUS]
    failed = {s["rule"]: s for s in statuses if s["status"] == "quarantined"}
    assert failed.keys() == {"bad", "twin"}
    assert len([s for s in statuses if s["status"] == "quarantined"]) == 2
    alerts = [orjson.loads(r.value or b"") for r in out if r.lane == ALERTS]
    matches = [(a["rule"], a["key"]["user"], [e["offset"] for e in a["events"]]) for a in alerts]
    expected = [("u", [0, 2]), ("u", [4, 5]), ("v", [1, 3])]
    assert sorted(matches) == [(name, *match) for name in ("good", "plain") for match in expected]
    assert failed["bad"]["reason"].startswith("pattern condition: ArithmeticError: the amount is 2")
