"""``headgate rules list``: the rules of an app and their history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Output, emit, output_option
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import server_option, streams_option, target_option

if TYPE_CHECKING:
    from headgate.rules.remote import RemoteApp


@click.command(name="list", short_help="List the published rules of an app.")
@streams_option
@target_option
@server_option
@click.option("--history", is_flag=True, help="List every published change and its result.")
@click.option("--rule", default=None, help="Only this rule.")
@output_option
def list_(
    streams: Path | None,
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    rule: str | None,
    output: Output,
    *,
    history: bool,
) -> None:
    """List the rules that were published to an app, with its last response to each.

    The command reads only the control topic; the app need not run. SLOT is the role of a version: live, candidate (on
    trial in shadow or canary mode), scheduled (waits for its start time) or draft.
    """
    from headgate.rules.history import read_history
    from headgate.rules.publish import AppTopics, read_all_responses, require_app
    from headgate.rules.render import HISTORY_HEAD, RULES_HEAD, as_json, as_table, history_rows, rule_rows

    head = HISTORY_HEAD if history else RULES_HEAD
    if server is not None:
        rows = server.history_rows(rule) if history else server.rule_rows()
        rows = [row for row in rows if history or rule is None or row[0] == rule]
        emit(output, as_json(head, rows), as_table(head, rows))
        return
    kafka, topics = login.settings("headgate-rules"), AppTopics(app)
    require_app(kafka, topics)
    known, responses = read_history(kafka, topics, streams), read_all_responses(kafka, topics)
    rows = history_rows(known, responses, rule) if history else rule_rows(known, responses)
    rows = [row for row in rows if history or rule is None or row[0] == rule]
    emit(output, as_json(head, rows), as_table(head, rows))
