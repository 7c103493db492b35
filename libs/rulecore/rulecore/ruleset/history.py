"""The control log read back.

The author, subject and time of each change, which versions were live after each change, and every version's document.

Rules change through one log, and a rule set is a pure function of it, so the log alone answers these questions: here it
is applied again, record by record, each at the time when it was written. Promises: the history does not need the app.
The app's own answers may differ where its streams, limits or clock do; callers show them beside the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rulecore.documents.loading import decode_record
from rulecore.documents.rule import Rule, RuleMode
from rulecore.documents.slots import Slot, VersionSlot
from rulecore.documents.status import RuleStatus, StatusKind, Subject, as_reply
from rulecore.errors import RuleSetError
from rulecore.lists.routing import is_list
from rulecore.lists.store import ListStore
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord


@dataclass(frozen=True, slots=True)
class ControlEntry:
    """A control record with the note of its author. ``time_ms``: when it was written."""

    control: ControlRecord
    time_ms: int
    by: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change and its outcome."""

    written: ControlEntry
    status: RuleStatus


@dataclass(slots=True)
class RuleHistory:
    """``entries`` in the order of the log; ``rules`` and ``lists`` are the rules and lists after the last of them.

    ``documents``: every version that was ever accepted. ``versions_over_time``: by rule, the versions that stood in
    the live slot one after the other, each with the place of its entry; None where the rule was deleted.
    """

    rules: RuleSet
    lists: ListStore = field(default_factory=ListStore.empty)
    entries: list[HistoryEntry] = field(default_factory=list)
    documents: dict[tuple[str, int], Rule] = field(default_factory=dict)
    live_versions: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)

    def before(self, rule: str, entry: int) -> int | None:
        """Return the version that was live before an entry; None when there was none."""
        earlier = [version for place, version in self.live_versions.get(rule, ()) if place < entry]
        return earlier[-1] if earlier else None

    def newest(self, rule: str) -> int:
        """Return the highest version that was ever accepted; 0 for none."""
        return max((version for name, version in self.documents if name == rule), default=0)


def replay_log(rules: RuleSet, log: Iterable[ControlEntry]) -> RuleHistory:
    """Apply a log to a set (an empty one, usually)."""
    history = RuleHistory(rules)
    for written in log:
        if is_list(written.control):
            history.entries.append(HistoryEntry(written, _apply_list(history, written.control)))
            continue
        after, statuses = history.rules.apply([written.control], written.time_ms)
        history.rules = after
        for status in statuses:
            history.entries.append(HistoryEntry(written, status))
            if status.subject is Subject.RULE:
                _record_versions(history, status)
    return history


def _apply_list(history: RuleHistory, control: ControlRecord) -> RuleStatus:
    key = (control.key or b"").decode("utf-8", "replace")
    history.lists, answer = history.lists.apply(key, control.value, history.rules.rules_using_list)
    history.rules = history.rules.with_lists(history.lists.types())
    return as_reply(answer, control, history.rules.epoch)


def _record_versions(history: RuleHistory, status: RuleStatus) -> None:
    for slot in Slot:
        value = history.rules.stored.get(VersionSlot(status.name, slot))
        if value is not None and status.status in (StatusKind.ACCEPTED, StatusKind.EFFECTIVE):
            rule = decode_record(value, len(value))
            history.documents[rule.id, rule.version] = rule
    live = history.rules.live(status.name)
    version = None if live is None else live.rule.version
    versions_over_time = history.live_versions.setdefault(status.name, [])
    if (versions_over_time[-1][1] if versions_over_time else None) != version:
        versions_over_time.append((len(history.entries) - 1, version))


def roll_back(history: RuleHistory, rule_id: str, to: int | None = None) -> Rule:
    """Return an earlier version under a new number, live: version ``to``, or the one that was live before.

    ``RuleSetError`` when there is no such version.
    """
    known = sorted(version for name, version in history.documents if name == rule_id)
    if not known:
        raise RuleSetError(f"no version of {rule_id!r} was ever accepted; see headgate rules list --history")
    if to is None:
        versions = [version for _, version in history.live_versions.get(rule_id, ()) if version is not None]
        live = history.rules.live(rule_id)
        earlier = [v for v in versions if live is None or v != live.rule.version]
        if not earlier:
            raise RuleSetError(f"{rule_id} has had no other version than {versions[-1] if versions else known[-1]}")
        to = earlier[-1]
    if to not in known:
        raise RuleSetError(f"{rule_id} has no version {to}; it has {', '.join(map(str, known))}")
    return _with_next_version(history, rule_id, to)


def _with_next_version(history: RuleHistory, rule_id: str, version: int) -> Rule:
    document = history.documents[rule_id, version]
    change: dict[str, object] = {"version": history.newest(rule_id) + 1}
    if document.status in (RuleMode.DRAFT, RuleMode.RETIRED):
        change["mode"] = RuleMode.LIVE
    return document.model_copy(update=change)


def revert_release(history: RuleHistory, release: str) -> tuple[Sequence[Rule], Sequence[str]]:
    """Return the versions and the deletions that take back a release: each rule as it was before it."""
    own = {
        entry.status.name: place
        for place, entry in reversed([*enumerate(history.entries)])
        if entry.status.release == release and entry.status.subject is Subject.RULE
    }
    if not own:
        raise RuleSetError(f"there is no accepted release {release!r}; see headgate rules list --history")
    before: Mapping[str, int | None] = {rule: history.before(rule, place) for rule, place in sorted(own.items())}
    back = [_with_next_version(history, rule, version) for rule, version in before.items() if version is not None]
    return back, [rule for rule, version in before.items() if version is None]
