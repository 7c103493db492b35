"""The text form of an app's rules for users: the versions in their slots, and the author and time of each change.

Built from the control topic alone, with the app's own answers beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.console.output import Json
from headgate.console.tables import table
from headgate.rules.publish import ControlResponse
from rulecore.check_policies import enters_decisions
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import Rule
from rulecore.documents.scalars import render_time
from rulecore.documents.slots import Slot
from rulecore.ruleset.decision_policies import CompiledPolicies
from rulecore.ruleset.history import HistoryEntry, RuleHistory

RULES_HEAD = ("RULE", "VERSION", "SLOT", "MODE", "KIND", "STREAM", "SEVERITY", "POLICY", "STATUS", "REASON")
HISTORY_HEAD = ("TIME", "BY", "WHAT", "NAME", "VERSION", "MODE", "STATUS", "RELEASE", "WHY", "REASON")

Row = tuple[str | int | None, ...]


def rule_rows(history: RuleHistory, responses: Sequence[ControlResponse]) -> list[Row]:
    """Return one row for each version that has a slot, with the app's latest response about it."""
    last = {(a.rule, a.version): a for a in responses if a.subject == "rule"}
    policies = history.rules.policies
    return [_rule_row(place.slot, rule, last, policies) for place, rule in sorted(history.rules.rules.items())]


def find_policy(slot: Slot, rule: Rule, policies: CompiledPolicies) -> str | None:
    """Return the decision policy that merges the rule of a slot with others, or several with commas; None for a rule
    that is in no decision."""
    if slot not in (Slot.LIVE, Slot.CANDIDATE) or not enters_decisions(rule):
        return None
    return ", ".join(one.decision_policy for one in policies.merging(rule)) or None


def _rule_row(
    slot: Slot,
    compiled: CompiledRule,
    responses: Mapping[tuple[str, int | None], ControlResponse],
    policies: CompiledPolicies,
) -> Row:
    rule: Rule = compiled.rule
    response = responses.get((rule.id, rule.version))
    status, reason = (None, None) if response is None else (response.status, response.reason)
    of = (rule.mode_text, rule.kind.value, rule.on, rule.then.severity.value, find_policy(slot, rule, policies))
    return (rule.id, rule.version, slot.value, *of, status, reason)


def history_rows(history: RuleHistory, responses: Sequence[ControlResponse], rule: str | None) -> list[Row]:
    """Return one row for each change, in order. ``rule``: only changes of this rule."""
    own = {(a.position.partition, a.position.offset, a.subject, a.rule): a for a in responses}
    return [
        _history_row(entry, own.get((c.partition, c.offset, entry.status.subject.value, entry.status.name)))
        for entry in history.entries
        for c in (entry.written.control,)
        if rule is None or entry.status.name == rule
    ]


def _history_row(entry: HistoryEntry, response: ControlResponse | None) -> Row:
    """Return the row of a change, with the app's own response if there is one."""
    status, written = entry.status, entry.written
    status_text, reason = (
        (status.status.value, status.reason) if response is None else (response.status, response.reason)
    )
    what = (status.subject.value, status.name, status.version, status.mode)
    by = written.by if status.by is None else f"{status.by} (signed)"
    return (render_time(written.time_ms), by, *what, status_text, status.release, written.why, reason)


def as_json(head: Sequence[str], rows: Sequence[Row]) -> Json:
    """Return one object per row; its keys are the column names in lower case."""
    return [dict(zip((name.lower() for name in head), row, strict=True)) for row in rows]


def as_table(head: Sequence[str], rows: Sequence[Row]) -> str:
    """Render the rows as a table, with the first line of each reason."""
    return "\n".join(table(head, [_texts(row) for row in rows]))


def _texts(row: Row) -> tuple[str, ...]:
    values = ["-" if value is None else str(value).split("\n", 1)[0] for value in row]
    return (*values[:-1], "" if values[-1] == "-" else values[-1])
