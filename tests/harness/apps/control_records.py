"""Control records for tests of rule sets."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rulecore.documents.releases import to_records
from rulecore.documents.rule import Rule
from rulecore.documents.status import RuleStatus
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"], ["card"]],
        "fields": {"ts": "timestamp not null", "user": "string", "card": "string", "amount": "decimal(12,2)"},
    }
)
STREAMS = {"pay": SCHEMA}
NOW = 1_800_000_000_000
HOUR = 3_600_000


def document(rule_id: str = "r", version: int = 1, **fields: object) -> dict[str, object]:
    """Return a rule per event, unless the fields say otherwise."""
    base: dict[str, object] = {"id": rule_id, "version": version, "owner": "o", "on": "pay"}
    base["then"] = {"severity": "low", "message": "m"}
    if not {"having", "expect", "score"} & fields.keys():
        base["where"] = "amount > 1"
    return base | fields


def put(rule_id: str = "r", version: int = 1, offset: int = 0, /, **fields: object) -> ControlRecord:
    """Return a version as a control record."""
    return ControlRecord(0, offset, rule_id.encode(), orjson.dumps(document(rule_id, version, **fields)))


def release(name: str, rules: Sequence[dict[str, object]], deleted: Sequence[str] = ()) -> list[ControlRecord]:
    """Return a release as control records."""
    versions = [Rule.model_validate(rule) for rule in rules]
    return [
        ControlRecord(0, i, key.encode(), value) for i, (key, value) in enumerate(to_records(name, versions, deleted))
    ]


def after(rules: RuleSet, *records: ControlRecord, clock_ms: int = NOW) -> RuleSet:
    """Return the set after records that are all accepted."""
    changed, answers = rules.apply(records, clock_ms)
    rejected = [a for a in answers if a.status == "rejected"]
    assert not rejected, rejected
    return changed


def answer(rules: RuleSet, record: ControlRecord, clock_ms: int = NOW) -> RuleStatus:
    """Return the first answer to a record."""
    return rules.apply([record], clock_ms)[1][0]


def evaluated_versions(rules: RuleSet) -> list[tuple[str, int]]:
    """Return id and version of the evaluated rules."""
    return [(c.rule.id, c.rule.version) for c in rules.evaluated_rules()]
