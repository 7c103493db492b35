"""Random schedules of proposals, approvals, emergencies, roll-backs, replays and forgeries, judged by an oracle.

The oracle knows who has really signed what. It counts approvals itself, and asks after every record of each version
that may alert whether its policy allows it. ``HEADGATE_APPROVAL_SCHEDULES``: number of schedules.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from rulecore.documents.status import RuleStatus
from rulecore.governance.table import GovernanceTable
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from tests.harness.apps.control_records import HOUR, NOW, STREAMS, document, put
from tests.harness.apps.governed import (
    ADMIN,
    APPROVER,
    AUTHOR,
    CONSOLE,
    PUBLISHER,
    SECOND,
    STRANGER,
    Signer,
    introduced,
)

SCHEDULES = int(os.environ.get("HEADGATE_APPROVAL_SCHEDULES", "2000"))
_RULES = ("a", "b")
_LEVELS = {"author": 0, "publisher": 1, "approver": 2, "admin": 3}
#: Who acts: the signer, and the person for whom a console signs.
_ACTORS = (
    *((one, None) for one in (AUTHOR, PUBLISHER, APPROVER, SECOND, ADMIN)),
    (CONSOLE, {"subject": "alice", "role": "admin"}),
    (CONSOLE, {"subject": "frank", "role": "approver"}),
    (CONSOLE, {"subject": "gina", "role": "author"}),
    (STRANGER, None),
    (Signer("carol", "approver", "carol", STRANGER.key), None),
)


class BrokenLaw(AssertionError):
    """A version counts without what its policy asks."""


@dataclass
class Proposed:
    """What is true of a proposal: who made it, when, and who has approved it in time."""

    rule: str
    content: tuple[object, ...]
    by: str
    level: int
    at_ms: int
    emergency: bool
    approvals: set[str] = field(default_factory=set)


@dataclass
class Oracle:
    """``allowed``: the contents of each rule that enough others have approved. ``alone``: since when the rule is in an
    emergency, from its first proposal after the last approval. ``urgent``: until when a content may count alone.
    ``seen``: the versions of the step before; one that
    leaves the tag of its rule out is judged when it is new; ``governed``: rules with the tag until an approved version
    is without it. ``rightful``: contents that counted without an emergency.
    """

    approvals: int
    hours: int
    proposed: dict[str, Proposed] = field(default_factory=dict)
    allowed: dict[str, set[tuple[object, ...]]] = field(default_factory=lambda: {rule: set() for rule in _RULES})
    alone: dict[str, int] = field(default_factory=dict)
    urgent: dict[str, dict[tuple[object, ...], int]] = field(default_factory=lambda: {rule: {} for rule in _RULES})
    seen: dict[str, set[tuple[object, ...]]] = field(default_factory=lambda: {rule: set() for rule in _RULES})
    rightful: dict[str, set[tuple[object, ...]]] = field(default_factory=lambda: {rule: set() for rule in _RULES})
    governed: dict[str, bool] = field(default_factory=lambda: dict.fromkeys(_RULES, False))

    def told(self, proposal: Proposed | None, name: str) -> None:
        if proposal is not None and name not in self.proposed:
            self.proposed[name] = proposal

    def begun(self, answers: Sequence[RuleStatus]) -> None:
        """Note an emergency that was accepted, and the end of one by approval."""
        one = self.proposed.get(answers[0].name) if answers else None
        if one is None or answers[0].status != "accepted":
            return
        if answers[0].subject == "approval":
            self.alone.pop(one.rule, None)
            self.governed[one.rule] = "gov" in str(one.content[2])
        elif "emergency" in str(answers[0].reason) and one.emergency and one.level >= _LEVELS["publisher"]:
            self.urgent[one.rule][one.content] = self.alone.setdefault(one.rule, one.at_ms) + self.hours * HOUR

    def approved(self, name: str, by: str, level: int) -> None:
        one = self.proposed.get(name)
        if one is None or by == one.by or level < _LEVELS["approver"]:
            return
        one.approvals.add(by)
        if len(one.approvals) >= self.approvals:
            self.allowed[one.rule].add(one.content)

    def judge(self, rules: RuleSet, clock_ms: int, answers: Sequence[RuleStatus] = ()) -> None:
        """Judge what may alert now. ``answers``: to the record before; what no record has made live comes from the end
        of an emergency, and may be what counted before it."""
        written = {(one.name, one.version) for one in answers if one.status == "accepted"}
        for compiled in rules.evaluated_rules():
            rule = compiled.rule
            content = (str(rule.where), rule.mode_text, rule.tags)
            escapes = self.governed[rule.id] and (rule.version, content) not in self.seen[rule.id]
            if rule.mode_text == "shadow" or not ("gov" in rule.tags or escapes):
                continue
            if content in self.allowed[rule.id]:
                continue
            if content in self.rightful[rule.id] and (rule.id, rule.version) not in written:
                continue
            if clock_ms >= self.urgent[rule.id].get(content, 0):
                raise BrokenLaw(f"{rule.id}@{rule.version} {content} counts")
        for compiled in rules.evaluated_rules():
            rule, content = compiled.rule, (str(compiled.rule.where), compiled.rule.mode_text, compiled.rule.tags)
            if content not in self.urgent[rule.id]:
                self.rightful[rule.id].add(content)
        for name in _RULES:
            held = [c.rule for p, c in rules.rules.items() if p.rule == name]
            self.seen[name] = {(rule.version, (str(rule.where), rule.mode_text, rule.tags)) for rule in held}
            self.governed[name] |= any("gov" in rule.tags for rule in held)


def run_schedule(seed: int, reached: Counter[str] | None = None) -> tuple[RuleSet, list[tuple[ControlRecord, int]]]:
    """Run one schedule. ``BrokenLaw`` if a version counts that may not. Return its first set and its records."""
    dice = random.Random(seed)
    oracle = Oracle(approvals=dice.choice((1, 1, 2)), hours=dice.choice((0, 24, 24)))
    policy = ADMIN.policy(tags=["gov"], approvals=oracle.approvals, emergency_hours=oracle.hours)
    first, _ = _start(policy)
    rules, clock, log = first, NOW, list[tuple[ControlRecord, int]]()

    def count(answers: Sequence[RuleStatus]) -> None:
        if reached is not None:
            reached.update(f"{one.subject} {one.status}" for one in answers)

    sent: list[ControlRecord] = []
    for _ in range(dice.randint(4, 14)):
        if dice.random() < 0.2:
            clock += dice.choice((1, HOUR, 12 * HOUR, 24 * HOUR))
            rules, ended = rules.at_time(clock)
            count(ended)
            oracle.judge(rules, clock)
        name = dice.choice(_RULES)
        held = [c.rule.version for p, c in rules.rules.items() if p.rule == name]
        version = max(held, default=0) + dice.choice((1, 1, 1, 2, 0))
        what: dict[str, object] = {
            "where": f"amount > {dice.randint(1, 3)}",
            "mode": dice.choice(("live", "live", "live", {"canary": "10%"}, "shadow")),
            "tags": dice.choice((["gov"], ["gov"], ["gov", "x"], [])),
        }
        record = _step(dice, oracle, (name, version, what), clock, sent)
        sent.append(record)
        log.append((record, clock))
        rules, answers = rules.apply([record], clock)
        oracle.begun(answers)
        oracle.judge(rules, clock, answers)
        count(answers)
        if reached is not None:
            reached["alone"] += any(not one.over for one in rules.governance.emergencies.values())
    rules, ended = rules.at_time(clock + 24 * HOUR)
    count(ended)
    oracle.judge(rules, clock + 24 * HOUR)
    return first, log


def run_schedules(seeds: range, reached: Counter[str] | None = None) -> None:
    """Run the schedules of these seeds."""
    for seed in seeds:
        run_schedule(seed, reached)


_STARTED: dict[ControlRecord, tuple[RuleSet, object]] = {}


def _start(policy: ControlRecord) -> tuple[RuleSet, object]:
    if policy not in _STARTED:
        _STARTED[policy] = RuleSet.empty(STREAMS).apply([*introduced(), policy], NOW)
    return _STARTED[policy]


def _step(
    dice: random.Random,
    oracle: Oracle,
    change: tuple[str, int, dict[str, object]],
    clock: int,
    sent: list[ControlRecord],
) -> ControlRecord:
    """Return the next record, and tell the oracle what is true of it."""
    name, version, what = change
    signer, person = dice.choice(_ACTORS)
    real = signer.key is not STRANGER.key
    by = str(person["subject"] if person else signer.subject)
    level = min(_LEVELS[signer.role], _LEVELS[str(person["role"])] if person else 3)
    entries = {} if person is None else {"by": person}
    kind = dice.choices(("propose", "approve", "unsigned", "replay", "delete", "refuse"), (10, 14, 5, 3, 1, 1))[0]
    if kind == "unsigned":
        return put(name, version, **what)
    if kind == "delete":
        return ControlRecord(0, 0, name.encode(), None)
    if kind == "replay" and sent:
        return dice.choice(sent)
    if kind in ("approve", "refuse") and oracle.proposed:
        proposal = dice.choice([*oracle.proposed][-3:])
        if kind == "refuse":
            return signer.approve(proposal, clock, verdict="refuse", **entries)
        if real:
            oracle.approved(proposal, by, level)
        return signer.approve(proposal, clock, **entries)
    emergency = dice.random() < 0.3
    own, record = signer.propose(document(name, version, **what), at_ms=clock, emergency=emergency, **entries)
    tags = what["tags"]
    mode = "canary 10%" if isinstance(what["mode"], dict) else what["mode"]
    assert isinstance(tags, list)
    content = (what["where"], mode, tuple(tags))
    oracle.told(Proposed(name, content, by, level, clock, emergency) if real else None, own)
    return record


def chunks() -> list[range]:
    size = max(1, SCHEDULES // 4)
    return [range(start, min(start + size, SCHEDULES)) for start in range(0, SCHEDULES, size)]


@pytest.mark.slow
@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("seeds", chunks(), ids=str)
def test_no_version_counts_without_what_its_policy_asks(seeds: range) -> None:
    reached: Counter[str] = Counter()
    run_schedules(seeds, reached)
    if len(seeds) >= 1_000:
        wanted = ("proposal proposed", "proposal accepted", "approval accepted", "approval rejected", "rule expired")
        assert all(reached[name] >= 20 for name in (*wanted, "rule effective", "rule accepted", "alone")), reached


@pytest.mark.slow
def test_some_schedules() -> None:
    reached: Counter[str] = Counter()
    run_schedules(range(60), reached)
    assert reached["approval accepted"]


@pytest.mark.parametrize("check", ["unsigned", "same subject", "role", "signature", "end", "second emergency"])
@pytest.mark.quick_cases(2)
def test_the_oracle_sees_each_missing_check(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each protection off, a schedule breaks the law."""
    from rulecore.governance import table

    off = {
        "unsigned": lambda: monkeypatch.setattr(GovernanceTable, "check_unsigned", lambda *_: None),
        "same subject": lambda: monkeypatch.setattr(GovernanceTable, "add_approval", _count_all),
        "role": lambda: monkeypatch.setattr(table.SignerIdentity, "require", lambda *_: None),
        "signature": lambda: monkeypatch.setattr(table, "verify", lambda *_: True),
        "end": lambda: monkeypatch.setattr(GovernanceTable, "take_ended", lambda _: []),
        "second emergency": lambda: monkeypatch.setattr(GovernanceTable, "check_emergency", _forget_emergency),
    }
    off[check]()
    _STARTED.clear()
    with pytest.raises(BrokenLaw):
        run_schedules(range(3_000))


def _count_all(table: GovernanceTable, name: str, by: object) -> object:
    found = table.find(name)
    counted = replace(found, approvals=(*found.approvals, str(by)))
    table.open(name, counted)
    return counted


def _forget_emergency(table: GovernanceTable, rule: str) -> None:
    known = table.emergencies.get(rule)
    if known is not None and known.over:
        del table.emergencies[rule]


@pytest.mark.slow
def test_a_log_that_is_replayed_gives_what_its_records_give_one_by_one() -> None:
    changes = 0
    for seed in range(300):
        first, log = run_schedule(seed)
        one_by_one, replay = first, first.start_replay()
        for record, clock in log:
            one_by_one, expected = one_by_one.apply([record], clock)
            assert replay.apply(record, clock) == expected, seed
        replayed = first.after_replay(replay)
        assert replayed == one_by_one, seed
        assert replayed.records() == one_by_one.records(), seed
        assert [*replayed.rules] == [*one_by_one.rules], seed
        changes += replayed.revision - first.revision
    assert changes > 300
