"""Answers an ``ExplainQuery``: from files alone, or from Kafka (``from_kafka``).

Promises: a query that cannot be answered raises ``InputError`` with the missing part.
"""

from __future__ import annotations

from pathlib import Path

from headgate.errors import InputError
from headgate.explain.from_file import about_last, decode_rows, file_input, missing_notes, read_lines
from headgate.explain.query import ExplainQuery, ExplainResult, known_rule, signal_rules
from headgate.records.scalar_decoder import SCALAR_LIMIT
from headgate.rules.bundle import read_bundle
from rulecore.explain.event import explain_event, is_plain
from rulecore.explain.explanation import ExplainQuestion


def answer(query: ExplainQuery) -> ExplainResult:
    """Answer the query. Raises ``InputError``, naming the missing part, if that is not possible."""
    if query.event_json is not None and (query.key or query.at or query.event):
        raise InputError(
            "--event-json is about the last event of the file: leave out --key, --at and --event; put it last"
        )
    if query.rules is not None and query.event_json is not None:
        return _explain_file(query)
    from headgate.explain.from_kafka import answer_published  # importing the Kafka clients takes 0.25 s

    return answer_published(query)


def _explain_file(query: ExplainQuery) -> ExplainResult:
    bundle = read_bundle([query.rules or Path()], query.streams, query.lists, about=query.target)
    if bundle.problems:
        raise InputError("rules with problems:\n" + "\n".join(p.render() for p in bundle.problems))
    known = {rule.rule.id: rule for rule in bundle.rules}
    rule = known_rule(query.target, known)
    path = query.event_json or Path()
    source = file_input(path, rule.rule.on, bundle.streams)
    lines = read_lines(path)
    if is_plain(rule) and len(lines) <= SCALAR_LIMIT:
        rows = decode_rows(path, lines, source, query.now_ms)
        explanation = explain_event(rule, source, rows, ExplainQuestion(row=len(rows) - 1))
        return ExplainResult(explanation, about_last(path), (), missing_notes(source))
    from headgate.explain.evidence import decode_lines, explain_evidence  # importing polars and the kernel takes 0.5 s

    evidence = decode_lines(path, lines, source, rule, query.now_ms)
    return explain_evidence(rule, evidence, signal_rules(rule, known), bundle.list_store())
