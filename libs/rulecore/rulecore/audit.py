"""The control log read back: who changed what and when, what counted after each change, and every version's document.

Rules change through one log, and a rule set is a pure function of it, so the log alone answers these questions: here it
is applied again, record by record, each at the time when it was written. Promises: the history does not need the app.
What the app itself answered may differ where its streams, limits or clock do; callers show that beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rulecore.errors import RuleSetError
from rulecore.lists.control import is_list
from rulecore.lists.store import ListStore
from rulecore.load import decode_record
from rulecore.model import Mode, Rule
from rulecore.ruleset import RuleSet
from rulecore.slots import Place, Slot
from rulecore.status import Status, StatusKind, Subject, placed
from streamcore.kernel import Control


@dataclass(frozen=True, slots=True)
class Written:
    """A control record with what its author said beside it. ``time_ms``: when it was written."""

    control: Control
    time_ms: int
    by: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One change and what became of it."""

    written: Written
    status: Status


@dataclass(slots=True)
class History:
    """``entries`` in the order of the log; ``rules`` and ``lists`` are what there is after the last of them.

    ``documents``: every version that was ever accepted. ``counted``: by rule, the versions that stood in the live slot
    one after the other, each with the place of its entry; None where the rule was deleted.
    """

    rules: RuleSet
    lists: ListStore = field(default_factory=ListStore.empty)
    entries: list[Entry] = field(default_factory=list)
    documents: dict[tuple[str, int], Rule] = field(default_factory=dict)
    counted: dict[str, list[tuple[int, int | None]]] = field(default_factory=dict)

    def before(self, rule: str, entry: int) -> int | None:
        """The version that counted before an entry; None when there was none."""
        earlier = [version for place, version in self.counted.get(rule, ()) if place < entry]
        return earlier[-1] if earlier else None

    def newest(self, rule: str) -> int:
        """The highest version that was ever accepted; 0 for none."""
        return max((version for name, version in self.documents if name == rule), default=0)


def read_back(rules: RuleSet, log: Iterable[Written]) -> History:
    """Apply a log to a set (an empty one, usually)."""
    history = History(rules)
    for written in log:
        if is_list(written.control):
            history.entries.append(Entry(written, _take_list(history, written.control)))
            continue
        after, statuses = history.rules.apply([written.control], written.time_ms)
        history.rules = after
        for status in statuses:
            history.entries.append(Entry(written, status))
            if status.subject is Subject.RULE:
                _remember(history, status)
    return history


def _take_list(history: History, control: Control) -> Status:
    key = (control.key or b"").decode("utf-8", "replace")
    history.lists, answer = history.lists.apply(key, control.value, history.rules.users_of)
    history.rules = history.rules.with_lists(history.lists.types())
    return placed(answer, control, history.rules.epoch)


def _remember(history: History, status: Status) -> None:
    for slot in Slot:
        value = history.rules.stored.get(Place(status.name, slot))
        if value is not None and status.status in (StatusKind.ACCEPTED, StatusKind.EFFECTIVE):
            rule = decode_record(value, len(value))
            history.documents[rule.id, rule.version] = rule
    live = history.rules.live(status.name)
    version = None if live is None else live.rule.version
    counted = history.counted.setdefault(status.name, [])
    if (counted[-1][1] if counted else None) != version:
        counted.append((len(history.entries) - 1, version))


def rolled_back(history: History, rule_id: str, to: int | None = None) -> Rule:
    """An earlier version under a new number, live: the one of ``to``, or the one that counted before the present one.

    ``RuleSetError`` when there is no such version.
    """
    known = sorted(version for name, version in history.documents if name == rule_id)
    if not known:
        raise RuleSetError(f"no version of {rule_id!r} was ever accepted; see headgate rules list --history")
    if to is None:
        versions = [version for _, version in history.counted.get(rule_id, ()) if version is not None]
        live = history.rules.live(rule_id)
        earlier = [v for v in versions if live is None or v != live.rule.version]
        if not earlier:
            raise RuleSetError(f"{rule_id} has had no other version than {versions[-1] if versions else known[-1]}")
        to = earlier[-1]
    if to not in known:
        raise RuleSetError(f"{rule_id} has no version {to}; it has {', '.join(map(str, known))}")
    return _renewed(history, rule_id, to)


def _renewed(history: History, rule_id: str, version: int) -> Rule:
    document = history.documents[rule_id, version]
    change: dict[str, object] = {"version": history.newest(rule_id) + 1}
    if document.status in (Mode.DRAFT, Mode.RETIRED):
        change["mode"] = Mode.LIVE
    return document.model_copy(update=change)


def release_undone(history: History, release: str) -> tuple[Sequence[Rule], Sequence[str]]:
    """The versions and the deletions that take back a release: each rule as it was before it."""
    own = {
        entry.status.name: place
        for place, entry in reversed([*enumerate(history.entries)])
        if entry.status.release == release and entry.status.subject is Subject.RULE
    }
    if not own:
        raise RuleSetError(f"there is no accepted release {release!r}; see headgate rules list --history")
    before: Mapping[str, int | None] = {rule: history.before(rule, place) for rule, place in sorted(own.items())}
    back = [_renewed(history, rule, version) for rule, version in before.items() if version is not None]
    return back, [rule for rule, version in before.items() if version is None]
