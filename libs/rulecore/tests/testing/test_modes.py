"""The tests of a rule run whatever its mode is: what is written as a draft is tested before it is live."""

from __future__ import annotations

import pytest

from rulecore.documents.rule import Rule
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import run_tests
from streamcore.schema import StreamSchema

PAY = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "amount": "long"},
    }
)


@pytest.mark.parametrize("mode", ["live", "shadow", "draft", "paused", "retired"])
def test_a_rule_is_tested_in_every_mode(mode: str) -> None:
    rule = Rule.model_validate(
        {
            "id": "large",
            "version": 1,
            "owner": "me",
            "on": "pay",
            "mode": mode,
            "where": "amount > 10",
            "then": {"severity": "low", "message": "{user}"},
            "tests": [
                {"name": "fires", "events": [{"user": "u", "amount": 11}], "expect": [{"user": "u"}]},
                {"name": "is silent", "events": [{"user": "u", "amount": 10}], "expect": []},
            ],
        }
    )
    assert [one.diff for one in run_tests(rule, {"pay": PAY}, run_in_process)] == [(), ()]
