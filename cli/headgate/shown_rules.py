"""What an app's rules look like to people: the versions in their slots, and who changed what when.

Built from the control topic alone, with the app's own answers beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.output import Json
from headgate.publishing import Answer
from headgate.tables import table
from rulecore.audit import Entry, History
from rulecore.compiled import CompiledRule
from rulecore.model import Rule
from rulecore.slots import Slot
from rulecore.values import render_time

RULES_HEAD = ("RULE", "VERSION", "SLOT", "MODE", "KIND", "STREAM", "SEVERITY", "STATUS", "REASON")
HISTORY_HEAD = ("TIME", "BY", "WHAT", "NAME", "VERSION", "MODE", "STATUS", "RELEASE", "WHY", "REASON")

Row = tuple[str | int | None, ...]


def rule_rows(history: History, answers: Sequence[Answer]) -> list[Row]:
    """One for each version that has a slot, with the app's last word about that version."""
    last = {(a.rule, a.version): a for a in answers if a.subject == "rule"}
    return [_rule_row(place.slot, rule, last) for place, rule in sorted(history.rules.rules.items())]


def _rule_row(slot: Slot, compiled: CompiledRule, answers: Mapping[tuple[str, int | None], Answer]) -> Row:
    rule: Rule = compiled.rule
    answer = answers.get((rule.id, rule.version))
    status, reason = (None, None) if answer is None else (answer.status, answer.reason)
    of = (rule.mode_text, rule.kind.value, rule.on, rule.then.severity.value)
    return (rule.id, rule.version, slot.value, *of, status, reason)


def history_rows(history: History, answers: Sequence[Answer], rule: str | None) -> list[Row]:
    """One for each change, in order. ``rule``: only this one's."""
    own = {(a.position.partition, a.position.offset, a.subject, a.rule): a for a in answers}
    return [
        _history_row(entry, own.get((c.partition, c.offset, entry.status.subject.value, entry.status.name)))
        for entry in history.entries
        for c in (entry.written.control,)
        if rule is None or entry.status.name == rule
    ]


def _history_row(entry: Entry, answer: Answer | None) -> Row:
    """The app's own answer where there is one."""
    status, written = entry.status, entry.written
    said, reason = (status.status.value, status.reason) if answer is None else (answer.status, answer.reason)
    what = (status.subject.value, status.name, status.version, status.mode)
    return (render_time(written.time_ms), written.by, *what, said, status.release, written.why, reason)


def as_json(head: Sequence[str], rows: Sequence[Row]) -> Json:
    """Objects with the names of the columns in small letters."""
    return [dict(zip((name.lower() for name in head), row, strict=True)) for row in rows]


def as_table(head: Sequence[str], rows: Sequence[Row]) -> str:
    """Columns as wide as their longest entry, for people and for ``awk``; of a reason the first line."""
    return "\n".join(table(head, [_texts(row) for row in rows]))


def _texts(row: Row) -> tuple[str, ...]:
    values = ["-" if value is None else str(value).split("\n", 1)[0] for value in row]
    return (*values[:-1], "" if values[-1] == "-" else values[-1])
