"""Puts an explanation together: the rule and its history, the events that count, what else may have kept it silent.

Promises: a question that cannot be answered is an ``InputError`` that says what is missing; everything that was read
was bounded, and an answer that rests on a part of the events says so.
"""

from __future__ import annotations

from pathlib import Path

from headgate.errors import InputError
from headgate.explain_ask import Answer, Ask, known_rule, support_of
from headgate.explain_file import about_last, lines_of, rows_of
from headgate.few_records import FEW
from headgate.rulebook import read_book
from rulecore.explain_event import explain_event, is_plain
from rulecore.explanation import Question


def answer(ask: Ask) -> Answer:
    """The explanation. ``InputError`` for what is not there."""
    if ask.rules is not None and ask.event_json is not None:
        return _of_files(ask)
    from headgate.explain_published import answer_published  # a quarter of a second, with the clients of Kafka

    return answer_published(ask)


def _of_files(ask: Ask) -> Answer:
    book = read_book([ask.rules or Path()], ask.streams, ask.lists, about=ask.target)
    if book.problems:
        raise InputError("rules that are not sound:\n" + "\n".join(p.render() for p in book.problems))
    known = {rule.rule.id: rule for rule in book.rules}
    rule = known_rule(ask.target, known)
    schema = book.streams[rule.rule.on]
    path = ask.event_json or Path()
    lines = lines_of(path)
    if is_plain(rule) and len(lines) <= FEW:
        rows = rows_of(path, lines, schema, ask.now_ms)
        explanation = explain_event(rule, schema, path.name, rows, Question(row=len(rows) - 1))
        return Answer(explanation, about_last(path), (), ())
    from headgate.explain_inquiry import events_of_lines, explained  # half a second, with columns and the kernel

    inquiry = events_of_lines(path, lines, schema, rule, ask.now_ms)
    return explained(rule, schema, inquiry, support_of(rule, known), book.list_store())
