"""Many rule changes under load and kills: each alert's version was live in its cut, and no state is lost.

``HEADGATE_CHANGES`` changes (20; `make nightly`: 300, one a second or one a cut), some of which restore the
first version; among them one release of ``HEADGATE_RELEASE`` rules (100; 1,000), which changes the two rules that
are evaluated, too, and later is rolled back as a whole; and kill -9 of all processes ``HEADGATE_CHANGE_KILLS`` times
(1; 5).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from headgate.rules.publish import AppTopics, read_log
from rulecore.documents.releases import to_records
from rulecore.documents.rule import Rule
from rulecore.ruleset.history import replay_log, revert_release
from rulecore.ruleset.ruleset import RuleSet
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.kafka.control_topic import ControlLog
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Sent
from tests.harness.apps.published_rules import document
from tests.harness.apps.rules_scene import Scene, check_same
from tests.harness.oracles.lane_reader import as_object, batch_of, repeated_alerts
from tests.harness.oracles.rule_alerts import Oracle, RuleUnderTest

CHANGES = int(os.environ.get("HEADGATE_CHANGES", "20"))
RELEASE = int(os.environ.get("HEADGATE_RELEASE", "100"))
KILLS = int(os.environ.get("HEADGATE_CHANGE_KILLS", "1"))
PACE_S = 1.0 if CHANGES >= 100 else 0.4
PER_CHANGE = 120
PREFIX = "load-"
_AWAY = 3  # changes that come while the app is away after a kill

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600 + 4 * CHANGES)]


@dataclass(slots=True)
class Changes:
    """The published versions of two rules with their control offsets, and the offsets at which each batch ended.

    ``before``: the versions that the release replaced.
    """

    scene: Scene
    log: ControlLog
    versions: list[tuple[int, RuleUnderTest]] = field(default_factory=list)
    newest: dict[str, RuleUnderTest] = field(default_factory=dict)
    before: dict[str, RuleUnderTest] = field(default_factory=dict)
    ends: dict[int, dict[str, int]] = field(default_factory=lambda: {-1: {}})

    def version(self, name: str) -> int:
        """Return the number of the next version."""
        return int(str(self.newest[name].document["version"])) + 1

    def publish(self, rule: RuleUnderTest) -> None:
        """Publish a version."""
        self._record([rule], self.log.publish(rule.id, rule.value).offset)
        self.scene.published += 1

    def _record(self, some: Sequence[RuleUnderTest], offset: int) -> None:
        self.versions += [(offset, rule) for rule in some]
        self.newest |= {rule.id: rule for rule in some}

    def release(self, name: str, own: Sequence[RuleUnderTest], more: Sequence[Rule], deleted: Sequence[str]) -> int:
        """Publish a release in as many records as it needs; return the offset of the last one."""
        self.before = dict(self.newest)
        versions = [*(Rule.model_validate(rule.document) for rule in own), *more]
        position = [self.log.publish(key, value) for key, value in to_records(name, versions, deleted)][-1]
        self._record(own, position.offset)
        return position.offset

    def release_many(self) -> int:
        """Release many rules, with new thresholds of the two that are evaluated."""
        large, many = (f"{PREFIX}{name}" for name in ("large-order", "many-payments"))
        own = [
            rules.large_order(700, version=self.version(large), prefix=PREFIX),
            rules.many_payments(6, version=self.version(many), prefix=PREFIX),
        ]
        return self.release("many", own, _new_rules(RELEASE), [])

    def roll_back_release(self) -> int:
        """Roll the release back from the control topic alone, as `headgate rules rollback --release` does."""
        written = read_log(self.scene.kafka, AppTopics(self.scene.app.name))
        back, deleted, _ = revert_release(replay_log(RuleSet.empty(orders.schemas()), written), "many")
        own = [
            replace(rule, document={**rule.document, "version": self.version(name)})
            for name, rule in sorted(self.before.items())
        ]
        assert back == [Rule.model_validate(rule.document) for rule in own], "each as it was before the release"
        assert sorted(deleted) == sorted(rule.id for rule in _new_rules(RELEASE)), "which the release brought"
        return self.release("many-undone", own, [], deleted)

    def record_positions(self) -> None:
        """Record the ends of batches from the offset log, which has the last hundred."""
        log = CheckpointRoot(self.scene.app.checkpoint).offsets
        for batch in log.batches():
            if batch not in self.ends and (bounds := log.read(batch)) is not None:
                topics = bounds.end.by_topic()
                self.ends[batch] = {f"{t}-{p}": offset for t, places in topics.items() for p, offset in places.items()}


def test_each_alert_is_of_the_version_that_was_live_in_its_cut_and_nothing_is_lost(new_app: NewApp) -> None:
    scene = new_app("load", events_per_cut=1_500, control_records_per_cut=5)
    events = orders.orders(PER_CHANGE * CHANGES, seed=5, start_ms=scene.next_day(), step_ms=20)
    with scene.app, ControlLog(scene.kafka, f"{scene.app.name}.control") as log:
        changes = Changes(scene, log)
        changes.publish(rules.large_order(900, prefix=PREFIX))
        changes.publish(rules.many_payments(4, prefix=PREFIX))
        scene.app.start()
        scene.app.wait_for_cuts(1)
        released = _change_under_load(changes, events)
        scene.tick(events[-1].ts + orders.HOUR_MS)
        scene.app.wait_for_input(scene.count)
        scene.app.wait_for(lambda: _is_answered(scene, changes), "an answer to every change")
        assert scene.app.drain() == 0
        changes.record_positions()

    batches = _batches_of_changes(scene)
    _check_versions(changes, batches)
    _check_release(scene, "many", released[0], {"accepted": RELEASE + 2}, batches)
    _check_release(scene, "many-undone", released[1], {"accepted": 2, "deleted": RELEASE}, batches)
    _check_epochs(scene)
    assert not [a for a in scene.outputs.alerts() if a["incomplete"]], "no aggregate was lost by a new threshold"


def _change_under_load(changes: Changes, events: Sequence[orders.Order]) -> list[int]:
    """Send events, change rules and kill the app; return the control offsets of the release and of its rollback."""
    kill_at = {CHANGES * (k + 1) // (KILLS + 1) for k in range(KILLS)}
    released = []
    for number in range(CHANGES):
        began = time.monotonic()
        changes.scene.send(events[number * PER_CHANGE : (number + 1) * PER_CHANGE])
        if number == CHANGES // 2:
            released.append(changes.release_many())
        if number == CHANGES * 3 // 4:
            released.append(changes.roll_back_release())
        changes.publish(_next_version(changes, number))
        changes.record_positions()
        if number in kill_at:
            changes.scene.app.kill()
            changes.scene.app.start()
        if not any(number - _AWAY < kill <= number for kill in kill_at):
            _wait_for_cut(changes.scene)
        time.sleep(max(0.0, PACE_S - (time.monotonic() - began)))
    return released


def _wait_for_cut(scene: Scene) -> None:
    """Wait for a cut, so that the next change belongs to another one, however slow the machine."""
    scene.app.wait_for_cuts(len(scene.app.this_start) + 1)


def _next_version(changes: Changes, number: int) -> RuleUnderTest:
    """Return a version with another threshold; every seventh change has that of the first version."""
    name = f"{PREFIX}large-order" if number % 2 else f"{PREFIX}many-payments"
    version = changes.version(name)
    if number % 2:
        return rules.large_order(900 if number % 7 == 0 else 600 + 37 * number % 350, version=version, prefix=PREFIX)
    return rules.many_payments(4 if number % 7 == 0 else 3 + number % 5, version=version, prefix=PREFIX)


def _new_rules(count: int) -> list[Rule]:
    """Return rules that never match."""
    return [
        Rule.model_validate(document(f"{PREFIX}r{n}", where=f"kind = 'none' and amount > {n}")) for n in range(count)
    ]


def _is_answered(scene: Scene, changes: Changes) -> bool:
    return {offset for offset, _ in changes.versions} <= _batches_of_changes(scene).keys()


def _batches_of_changes(scene: Scene) -> dict[int, int]:
    """Return the batch that answered each control offset, from which the record counts."""
    found: dict[int, int] = {}
    for record in scene.outputs.read("status"):
        control = as_object(record)["control"]
        assert isinstance(control, dict)
        batch = batch_of(record)[1]
        assert found.setdefault(int(control["offset"]), batch) == batch, "all answers to one record are in one cut"
    return found


def _check_versions(changes: Changes, batches: dict[int, int]) -> None:
    """Compare alerts with an independent evaluation, in which each version is live from its cut to that of the next."""
    from_cut: dict[str, list[tuple[int, int, RuleUnderTest]]] = {}
    for offset, rule in changes.versions:
        from_cut.setdefault(rule.id, []).append((batches[offset], offset, rule))
    spans: dict[int, tuple[int, int | None]] = {}
    for versions in from_cut.values():
        for (batch, _, rule), after in zip(versions, [*versions[1:], None], strict=True):
            spans[id(rule)] = (batch, None if after is None else after[0])

    def is_live(rule: RuleUnderTest, event: Sent) -> bool:
        start, end = spans[id(rule)]
        place = f"{event.topic}-{event.partition}"
        began = event.offset >= changes.ends[start - 1].get(place, 0)
        return began and (end is None or event.offset < changes.ends[end - 1].get(place, 0))

    published = [rule for versions in from_cut.values() for *_, rule in versions]
    found = changes.scene.alerts_of(published)
    assert repeated_alerts(found) == []
    check_same(found, Oracle(published, is_live).run(changes.scene.sent))
    assert len({(a["rule"], a["version"]) for a in found}) > CHANGES // 3, "many versions gave alerts"


def _check_release(scene: Scene, name: str, offset: int, expected: dict[str, int], batches: dict[int, int]) -> None:
    """Check that a release is answered at one record and in one epoch. ``expected``: answers by status."""
    answers = [as_object(r) for r in scene.outputs.read("status")]
    own = [a for a in answers if a.get("release") == name and a["subject"] == "rule"]
    assert Counter(str(a["status"]) for a in own) == expected
    assert {str(a["control"]) for a in own} == {str({"partition": 0, "offset": offset})}
    assert len({a["rules_epoch"] for a in own}) == 1
    assert offset in batches


def _check_epochs(scene: Scene) -> None:
    """Check that all alerts and answers of a cut name one epoch of the rule set, and that epochs never decrease."""
    epochs: dict[int, set[int]] = {}
    for record in [*scene.outputs.read("alerts"), *scene.outputs.read("status")]:
        epochs.setdefault(batch_of(record)[1], set()).add(int(str(as_object(record)["rules_epoch"])))
    assert all(len(found) == 1 for found in epochs.values())
    in_order = [next(iter(epochs[batch])) for batch in sorted(epochs)]
    assert in_order == sorted(in_order)
