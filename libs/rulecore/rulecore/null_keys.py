"""Finds columns of ``group_by``, and of other keys of features, that are NULL in some events: all these events are one
group, which is seldom meant.

Such a rule is valid. A stream whose events are of several kinds has fields that only some kinds have, so a rule by
customer counts all events without a customer together unless its ``where`` leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rulecore import language as lang
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.language import Expr
from streamcore.schema import StreamSchema

#: Kinds whose ``where`` decides which events count. A score counts what its rules give.
_KINDS = frozenset({RuleKind.FEATURE, RuleKind.WINDOW, RuleKind.SEQUENCE})


def null_keys(rule: CompiledRule, schema: StreamSchema) -> Iterable[tuple[str, str]]:
    """Yield the rule's field and a message for each column of ``group_by``, or of another key of a feature, that may be
    NULL in events that count."""
    for name in rule.group_by if rule.kind in _KINDS else ():
        field = schema.get(name)
        if field is not None and field.nullable and not _leaves_null_out(rule, name, rule.where):
            yield "group_by", _message(name)
    for number, feature in enumerate(rule.features):
        for name in feature.by:
            field = None if name in rule.group_by else schema.get(name)
            conditions = (rule.where, feature.where)
            if field is not None and field.nullable and not any(_leaves_null_out(rule, name, c) for c in conditions):
                yield f"features.{number}.by", _message(name)


def _message(name: str) -> str:
    return f"{name}: all events without it are one group; write `where: ... and {name} is not null`"


def _leaves_null_out(rule: CompiledRule, name: str, where: Expr | None) -> bool:
    """Return whether a part of a condition that reads nothing but the column is not true for NULL."""
    answers = {one.name: one.operand for one in rule.list_columns}
    terms = () if where is None else lang.conjuncts(where)
    return any(_reads_only(term, name, answers) and lang.evaluate(term, {}) is not True for term in terms)


def _reads_only(expr: Expr, name: str, answers: Mapping[str, Expr]) -> bool:
    """Return whether the column is all that an expression reads. ``answers``: what columns of lists' answers read."""
    read = lang.columns(expr)
    return bool(read) and all(
        one == name or (one in answers and _reads_only(answers[one], name, answers)) for one in read
    )
