"""Builds an explanation: the rule and its history, the events that count, other reasons that kept the rule silent.

Promises: a question that cannot be answered is an ``InputError`` that names the missing part; all reads are bounded,
and an answer that rests on a part of the events states that.
"""

from __future__ import annotations

from pathlib import Path

from headgate.errors import InputError
from headgate.explain.from_file import about_last, decode_rows, read_lines
from headgate.explain.query import ExplainQuery, ExplainResult, known_rule, signal_rules
from headgate.records.scalar_decoder import SCALAR_LIMIT
from headgate.rules.bundle import read_bundle
from rulecore.explain.event import explain_event, is_plain
from rulecore.explain.explanation import ExplainQuestion


def answer(query: ExplainQuery) -> ExplainResult:
    """Answer the query; ``InputError`` names the missing part."""
    if query.rules is not None and query.event_json is not None:
        return _explain_file(query)
    from headgate.explain.from_kafka import answer_published  # a quarter of a second, with the clients of Kafka

    return answer_published(query)


def _explain_file(query: ExplainQuery) -> ExplainResult:
    bundle = read_bundle([query.rules or Path()], query.streams, query.lists, about=query.target)
    if bundle.problems:
        raise InputError("rules that are not sound:\n" + "\n".join(p.render() for p in bundle.problems))
    known = {rule.rule.id: rule for rule in bundle.rules}
    rule = known_rule(query.target, known)
    schema = bundle.streams[rule.rule.on]
    path = query.event_json or Path()
    lines = read_lines(path)
    if is_plain(rule) and len(lines) <= SCALAR_LIMIT:
        rows = decode_rows(path, lines, schema, query.now_ms)
        explanation = explain_event(rule, schema, path.name, rows, ExplainQuestion(row=len(rows) - 1))
        return ExplainResult(explanation, about_last(path), (), ())
    from headgate.explain.evidence import decode_lines, explain_evidence  # half a second, with columns and the kernel

    evidence = decode_lines(path, lines, schema, rule, query.now_ms)
    return explain_evidence(rule, schema, evidence, signal_rules(rule, known), bundle.list_store())
