"""Checks whether a rule can give signals to a score rule that names it, before the score rule is accepted."""

from __future__ import annotations

from collections.abc import Mapping

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind
from rulecore.errors import RuleSetError
from rulecore.streams import find_stream, stream_names
from streamcore.schema import StreamSchema


def incompatibility(score: CompiledRule, other: CompiledRule, streams: Mapping[str, StreamSchema]) -> str | None:
    """Return the reason why ``other`` can give no signals to a score rule that names it; None when it can.

    ``streams``: the schemas of all streams by name.
    """
    assert score.score is not None, "a score rule"
    name, weight = other.rule.id, score.score.weights[other.rule.id]
    if other.kind is RuleKind.SCORE:
        return f"{name} is a score rule itself; name the rules that it adds up"
    if not {*stream_names(other.rule.on)} <= {*stream_names(score.rule.on)}:
        return f"{name} is on {_list(other)}, this rule on {_list(score)}; name all streams of its rules in `on`"
    if weight is None and other.rule.then.score == 0:
        return f"{name} has no score in its `then`; give it a weight here, such as {{{name}: 10}}"
    if other.kind is RuleKind.EVENT:
        own = find_stream(streams, other.rule.on)
        absent = [column for column in score.group_by if own.get(column) is None]
        return f"{name} is on {_list(other)}, which has no {absent[0]} to group by" if absent else None
    if not set(score.group_by) <= set(other.group_by):
        needed, given = ", ".join(score.group_by), ", ".join(other.group_by)
        return f"{name} is grouped by [{given}], so its score belongs to no single key; it needs [{needed}] in group_by"
    if other.route_key != score.route_key:
        shared = ", ".join(score.route_key)
        return (
            f"{name} is routed by another key of {_list(other)} than this rule; group both by the same key, or declare "
            f"[{shared}] under keys of the stream"
        )
    return None


def _list(rule: CompiledRule) -> str:
    names = stream_names(rule.rule.on)
    return f"{'streams' if len(names) > 1 else 'stream'} {', '.join(names)}"


def check_compatible(
    score: CompiledRule, rules: Mapping[str, CompiledRule], streams: Mapping[str, StreamSchema]
) -> None:
    """Raise ``RuleSetError`` if a score rule names one of these rules that can give it no signals.

    Names of unknown rules, and rules of other kinds than score, are accepted.
    """
    if score.score is None:
        return
    for name in score.score.weights:
        if name in rules and (reason := incompatibility(score, rules[name], streams)) is not None:
            raise RuleSetError(f"score.of: {reason}")
