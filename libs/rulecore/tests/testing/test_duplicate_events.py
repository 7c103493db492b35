"""The tests of a rule use each event of a stream with ``deduplicate`` once, as the app does."""

from __future__ import annotations

import pytest

from rulecore.documents.rule import Rule
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import Event
from streamcore.schema import StreamSchema

DOCUMENT: dict[str, object] = {
    "name": "pay",
    "event_time": "ts",
    "event_id": "id",
    "keys": [["user"]],
    "fields": {"id": "long", "ts": "timestamp not null", "user": "string"},
}
RULE = Rule.model_validate(
    {
        "id": "twice",
        "version": 1,
        "owner": "me",
        "on": "pay",
        "where": "true",
        "group_by": ["user"],
        "within": {"tumbling": "1m"},
        "having": "count(*) >= 2",
        "then": {"severity": "low", "message": "{user}"},
    }
)


@pytest.mark.parametrize(("deduplicate", "alerts"), [("10s", 0), ("1s", 1), (None, 1)])
def test_an_event_that_comes_twice_within_the_horizon_counts_once(deduplicate: str | None, alerts: int) -> None:
    more = {} if deduplicate is None else {"deduplicate": deduplicate}
    events: list[Event] = [{"id": 7, "ts": 60_000 + ms, "user": "u"} for ms in (0, 5_000)]
    found = run_in_process([RULE], {"pay": StreamSchema.parse(DOCUMENT | more)}, {"pay": events})
    assert len(found) == alerts
