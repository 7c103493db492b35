"""Every hostile text through every entrance of the rules, for ``tests.harness.faults.sandbox``.

The entrances: rule files (``load_text``, then ``check``), control records (``decode_record``, ``RuleSet.apply``),
``compile_rule``, the message of an alert, and a rule's own tests. A case's word is ``rejected``, or ``harmless`` when
the text was taken for data: then it must come out unchanged, character by character.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from rulecore.check import check_rules
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.loading import decode_record, load_text
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.scalars import FieldValue
from rulecore.documents.status import StatusKind
from rulecore.errors import RuleError
from rulecore.ruleset.ruleset import RuleSet
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import run_tests
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema
from tests.harness.faults.hostile_texts import JSON, TEXTS, YAML

SHOP = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "event_id": "event_id",
        "keys": [["user_id"]],
        "fields": {
            "event_id": "string not null",
            "ts": "timestamp not null",
            "user_id": "string",
            "amount": "decimal(12,2)",
            "quantity": "long",
        },
    }
)
STREAMS: Mapping[str, StreamSchema] = {"shop": SHOP}
LIMITS = RuleLimits()
Document = dict[str, object]
Case = Callable[[], str]


def rule(**more: object) -> Document:
    """Return a sound rule with some entries replaced, or left out by None."""
    base: Document = {"id": "one", "version": 1, "owner": "o", "on": "shop", "where": "amount > 1"}
    whole = {**base, "then": {"severity": "low", "message": "m"}, **more}
    return {name: value for name, value in whole.items() if value is not None}


def windowed_rule(**more: object) -> Document:
    """Return the same with a window."""
    return rule(**{"group_by": ["user_id"], "within": {"tumbling": "1h"}, "having": "count(*) > 1", **more})


def constant(text: str) -> str:
    """Return a string constant of the language."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + "'"


def _keyed_rule(**more: object) -> Document:
    return rule(where=None, group_by=["user_id"], **more)


def _test(**more: object) -> Document:
    return rule(tests=[{"name": "t", "events": [{"amount": 2}], "expect": [{"severity": "low"}], **more}])


#: A place in a rule -> the rule with the text there.
PLACES: Mapping[str, Callable[[str], Document]] = {
    "where": lambda t: rule(where=t),
    "constant": lambda t: rule(where=f"user_id = {constant(t)}"),
    "having": lambda t: windowed_rule(having=t),
    "message": lambda t: rule(then={"severity": "low", "message": t}),
    "id": lambda t: rule(id=t),
    "on": lambda t: rule(on=t),
    "owner": lambda t: rule(owner=t),
    "description": lambda t: rule(description=t),
    "tags": lambda t: rule(tags=[t]),
    "outcome": lambda t: rule(then={"severity": "low", "message": "m", "outcome": t}),
    "severity": lambda t: rule(then={"severity": t, "message": "m"}),
    "mode": lambda t: rule(mode=t),
    "canary": lambda t: rule(mode={"canary": t}),
    "group_by": lambda t: windowed_rule(group_by=[t]),
    "within": lambda t: windowed_rule(within=t),
    "tumbling": lambda t: windowed_rule(within={"tumbling": t}),
    "suppress": lambda t: rule(suppress={"for": "1h", "by": [t]}),
    "effective": lambda t: rule(effective={"from": t}),
    "step": lambda t: windowed_rule(
        having=None, where=None, within="1h", sequence=[{"step": t, "where": t, "times": 2}]
    ),
    "list name": lambda t: _keyed_rule(expect={"where": "amount > 1", "every": "1h", "of": {"list": t}}),
    "signal": lambda t: _keyed_rule(score={"of": {t: 1}, "within": "1h", "limit": 1}),
    "entry": lambda t: rule(**{t: 1}),
    "test name": lambda t: _test(name=t),
    "test value": lambda t: _test(events=[{"amount": 2, "user_id": t}]),
    "test time": lambda t: _test(events=[{"amount": 2, "ts": t}]),
    "test column": lambda t: _test(events=[{t: 2}]),
    "expected": lambda t: _test(expect=[{"message": t}]),
}
#: Where people write what they like; everywhere else the text has no meaning and must be rejected.
_TESTS = frozenset({"test name", "test value", "test time", "expected"})
FREE = frozenset({"constant", "message", "owner", "description", "tags"}) | _TESTS


def warm_up() -> None:
    """Run every path once with a valid input, and once with an invalid one."""
    searches = ("user_id like '%a%'", "regexp_like(user_id, '(a)+[ab]?')", "user_id like '%a%a_%'")
    for text in ("plain", "{[('", "amount > 1", *searches, "\x00", "x" * 300_000):
        for place in PLACES:
            _check_in_place(place, text)
        _yaml(text)
        _json(text)
    for name in ("user_id", "1h", "live", "low"):
        for place in PLACES:
            _check_in_place(place, name)
    _yaml("a: &a [*a]")
    _yaml(json.dumps(rule()))
    _json(json.dumps(rule()))


def cases(given: object) -> Iterator[tuple[str, Case]]:
    """Yield a case for every text in every place, then for every document."""
    for one in TEXTS:
        for place in PLACES:
            yield f"{one.name} in {place}", partial(_check_in_place, place, one.text)
    for one in YAML:
        yield f"{one.name} as YAML", partial(_yaml, one.text)
    for one in JSON:
        yield f"{one.name} as JSON", partial(_json, one.text)


def _check_in_place(place: str, text: str) -> str:
    document = PLACES[place](text)
    from_file = _yaml(json.dumps(document, ensure_ascii=False).replace("\x7f", "\\u007f"))
    from_record = _json(json.dumps(document))
    if from_record == "rejected":
        assert from_file == "rejected", "a file is read as strictly as a record"
        return "rejected"
    parsed = decode_record(json.dumps(document).encode(), LIMITS.record_bytes)
    _as_written(parsed, document)
    _alerts(place, text, parsed)
    return from_file if place == "test column" else "harmless"


def _as_written(parsed: Rule, document: Document) -> None:
    """Check that the text is unchanged, also after it is stored and read again."""
    stored = json.loads(canonical_json(parsed))
    for name, value in document.items():
        _same(stored[name], value)
    assert decode_record(canonical_json(parsed), 1 << 30) == parsed


def _same(stored: object, written: object) -> None:
    if isinstance(written, dict):
        assert isinstance(stored, dict)
        for name, value in written.items():
            _same(stored[name], value)
    elif isinstance(written, list):
        assert isinstance(stored, list)
        assert len(stored) == len(written)
        for one, other in zip(stored, written, strict=True):
            _same(one, other)
    else:
        assert stored == written, f"{written!r} became {stored!r}"


def _event(user_id: str) -> Mapping[str, FieldValue]:
    return {"event_id": user_id[:50] + "-", "ts": 1, "user_id": user_id, "amount": 2}


def _alerts(place: str, text: str, parsed: Rule) -> None:
    """Return what the rule says about events that hold the text, and others."""
    if place == "constant":
        events = [_event(text), _event("other")]
        alerts = run_in_process([parsed], STREAMS, {"shop": events})
        assert [alert["key"] for alert in alerts] == [{"user_id": text}], alerts
    elif place == "message":
        events = [_event(text)]
        (alert,) = run_in_process([parsed], STREAMS, {"shop": events})
        assert alert["message"] == text.replace("{{", "{").replace("}}", "}"), alert
    elif place == "where":
        events = [_event("a" * 100_000 + "!")]
        assert len(run_in_process([parsed], STREAMS, {"shop": events})) <= 1
    elif parsed.tests:
        assert len(run_tests(parsed, STREAMS, run_in_process)) == 1


def _yaml(text: str) -> str:
    """Return a rule file, as `headgate rules check` reads it."""
    loaded, problems = load_text(text, "f.yaml")
    report = check_rules(loaded, STREAMS, LIMITS)
    found = [*problems, *report.problems]
    assert sum(len(problem.render()) for problem in found[:100]) < 1_000_000
    assert all(problem.place.line >= 1 for problem in found)
    assert len(report.rules) <= len(loaded)
    return "rejected" if found or not report.rules else "harmless"


def _json(text: str) -> str:
    """Return a control record: alone, and as a set of rules answers it."""
    value = text.encode("utf-8", "surrogatepass")
    try:
        parsed = decode_record(value, LIMITS.record_bytes)
        compile_rule(parsed, STREAMS, LIMITS)
        word, key = "harmless", parsed.id.encode()
    except RuleError as error:
        assert 0 < len(str(error)) < 5_000
        word, key = "rejected", b"one"
    before = RuleSet.empty(STREAMS, LIMITS)
    after, (status, *_) = before.apply([ControlRecord(0, 0, key, value)], 0)
    assert (status.status is StatusKind.ACCEPTED) == (word == "harmless"), status
    assert (after == before) == (word == "rejected")
    return word
