"""``headgate rules list``: the rules that an app has, and how they came to be."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.login import Login
from headgate.output import Output, emit, output_option
from headgate.rules_options import streams_option, target_option


@click.command(name="list")
@streams_option
@target_option
@click.option("--history", is_flag=True, help="Every change that was ever published, and what became of it.")
@click.option("--rule", default=None, help="Only this rule.")
@output_option
def list_(streams: Path | None, login: Login, app: str, rule: str | None, output: Output, *, history: bool) -> None:
    """List the rules that were published to an app, with its last answer to each.

    The list is made from the control topic alone; the app need not run. SLOT says which version counts (live), which
    one is on trial beside it (candidate), which waits for its time (scheduled), and which is only a draft.
    """
    from headgate.history import read_history
    from headgate.publishing import AppTopics, last_answers, require_app
    from headgate.shown_rules import HISTORY_HEAD, RULES_HEAD, as_json, as_table, history_rows, rule_rows

    kafka, topics = login.settings("headgate-rules"), AppTopics(app)
    require_app(kafka, topics)
    known, answers = read_history(kafka, topics, streams), last_answers(kafka, topics)
    head = HISTORY_HEAD if history else RULES_HEAD
    rows = history_rows(known, answers, rule) if history else rule_rows(known, answers)
    rows = [row for row in rows if history or rule is None or row[0] == rule]
    emit(output, as_json(head, rows), as_table(head, rows))
