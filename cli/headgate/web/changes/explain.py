"""Explanations as the command gives them: why a rule fired or did not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from headgate.console.output import Json
from headgate.errors import InputError
from headgate.explain.query import ExplainQuery
from headgate.explain.render_json import as_json
from headgate.kafka_login import KnownLogin
from headgate.records.formats import read_formats
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.settings import ConsoleApp
from rulecore.errors import RuleSetError
from streamcore.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Question:
    """``target``: an alert id, or a rule with an optional ``@VERSION``. ``event``: topic:partition:offset. ``key``:
    column=value for each column. ``at``: a time, or how long ago."""

    target: str
    event: str | None = None
    key: Sequence[str] = ()
    at: str | None = None


def explain(kafka: KafkaSettings, app: ConsoleApp, question: Question, scan: int) -> Json:
    """Return an explanation. ``ProblemError`` naming what is missing, if the question cannot be answered."""
    from headgate.explain.answer import answer

    try:
        formats = read_formats(app.settings)
        query = ExplainQuery(
            target=question.target,
            event=question.event,
            event_json=None,
            key=tuple(question.key),
            at=question.at,
            rules=None,
            streams=app.streams,
            lists=None,
            topics=(),
            login=KnownLogin(kafka),
            app=app.name,
            scan=scan,
            now_ms=int(time.time() * 1000),
            formats=formats,
        )
        return as_json(answer(query))
    except (InputError, RuleSetError) as error:
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None
