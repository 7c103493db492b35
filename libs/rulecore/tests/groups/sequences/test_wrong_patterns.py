"""A faulty pattern in a file of rules is reported with its line, its entry, what is wrong and what to write."""

from __future__ import annotations

import pytest

from rulecore.check import check_rules
from rulecore.documents.loading import load_text
from streamcore.schema import StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "acts",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "amount": "decimal(12,2)"},
    }
)
HEAD = """\
id: r
version: 1
owner: o
on: acts
group_by: [user]
within: 1h
then: {severity: high, message: m}
"""
B = "followed_by: b, where: kind = 'b'"


def problems_of(rest: str) -> list[tuple[int, str, str]]:
    checked = check_rules(load_text(HEAD + rest, "r.yaml")[0], {"acts": SCHEMA})
    return [(problem.place.line, problem.path, problem.message) for problem in checked.problems]


@pytest.mark.parametrize(
    ("second", "line", "path", "message"),
    [
        ("folowed_by: b, where: kind = 'b'", 10, "sequence.1.folowed_by", "did you mean followed_by?"),
        (
            "followed_by: b, next: c, where: kind = 'b'",
            10,
            "sequence.1",
            "a step has one of step, next, followed_by, followed_by_any",
        ),
        ("followed_by: in, where: kind = 'b'", 9, "sequence", "the step in is a word of the language; give it another"),
        ("followed_by: b, where: amount > a.amuont", 10, "sequence.1.where", "unknown column a.amuont; did you mean"),
        ("followed_by: b, where: amount > c.amount", 10, "sequence.1.where", "unknown column c.amount; did you mean"),
        (
            "without: amount > z.amount}\n  - {step: z, where: kind = 'z'",
            10,
            "sequence.1.without",
            "z is a later step; a condition reads its event, and those of the steps before it: a",
        ),
        (
            "followed_by: b, where: amount > sum(a.amount + b.amount)",
            10,
            "sequence.1.where",
            "sum(a.amount + b.amount) reads a and b; an aggregate is over the events of one step",
        ),
        ("followed_by: b, where: count(*) > 1", 10, "sequence.1.where", "count(*) in a sequence; write count(step)"),
        (f"{B}, times: {{at_least: 3, min: 2}}", 10, "sequence.1.times", "one of at_least and min"),
        (f"{B}, times: {{at_leest: 3}}", 10, "sequence.1.times.at_leest", "did you mean at_least?"),
        (
            "followed_by: b, where: kind > a.amount",
            10,
            "sequence.1.where",
            "string cannot be compared with decimal(12,2); accepted here: text in quotes",
        ),
        (
            "followed_by: b, where: amount > sum(a)",
            10,
            "sequence.1.where",
            "a is a step, no value; write such as sum(a.col",
        ),
        ("followed_by: b, where: amount > stddev(a.amount)", 10, "sequence.1.where", "there are count, sum, min"),
        (f"{B}, times: {{min: 3, max: 2}}", 10, "sequence.1.times", "times: max 2 is below min 3"),
        (f"{B}, times: 2, greedy: true", 10, "sequence.1.greedy", "is for steps with times from min to max"),
        (f"{B}, until: kind = 'c'", 10, "sequence.1.until", "the step takes a limited number of events; write times"),
        (f"{B}, within: soon", 10, "sequence.1.within", "'soon' is no duration; write a whole number and a unit"),
        (f"{B}, within: 2h", 9, "sequence", "within: 2h is longer than the rule's, 1h"),
        ("group: [], times: 2", 10, "sequence.1.group", "should have at least 1 item"),
        ("group: [{step: b, where: kidn = 'b'}]", 10, "sequence.1.group.0.where", "unknown column kidn; did you mean"),
        ("without: kind = 'b'", 9, "sequence", "a `without` at the end needs `within`: how long after the last step"),
        ("followed_by: a, where: kind = 'b'", 9, "sequence", "two steps are named a; give each a name of its own"),
    ],
)
def test_a_wrong_entry(second: str, line: int, path: str, message: str) -> None:
    found = problems_of(f"sequence:\n  - {{step: a, where: kind = 'a'}}\n  - {{{second}}}\n")
    assert [problem for problem in found if problem[:2] == (line, path) and message in problem[2]], found


@pytest.mark.parametrize(
    ("wrong", "path", "message"),
    [
        ("skip: {to_first: x}", "skip", "there is no step x; write one of a, b"),
        ("skip: {to_first: a, to_last: b}", "skip", "write one of {to_first: STEP} and {to_last: STEP}"),
        ("skip: next", "skip", "should be 'past_last', 'to_next' or 'none'"),
        ("timed_out: maybe", "timed_out", "should be 'drop' or 'emit'"),
        ("where: a.amount > 1", "where", "a is a step; the rule's where is about each event alone"),
        ("features: [{name: f, of: count(*), within: {sliding: 1h, every: 1m}}]", "features", "a sequence has none"),
    ],
)
def test_a_wrong_entry_beside_the_sequence(wrong: str, path: str, message: str) -> None:
    found = problems_of(f"{wrong}\nsequence:\n  - {{step: a, where: kind = 'a'}}\n  - {{{B}}}\n")
    assert [problem for problem in found if problem[:2] == (8, path) and message in problem[2]], found
