"""Explanations as the command gives them: why a rule fired or did not."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate.console.output import Json
from headgate.errors import InputError
from headgate.explain.query import ExplainQuery
from headgate.explain.render_json import as_json
from headgate.kafka_login import KnownLogin
from headgate.records.formats import read_formats
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.settings import ConsoleApp
from rulecore.documents.rule import Rule, canonical_json
from rulecore.errors import RuleSetError
from rulecore.ruleset.history import RuleHistory
from rulecore.streams import stream_names
from streamcore.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Question:
    """``target``: an alert id, or a rule with an optional ``@VERSION``. ``event``: topic:partition:offset. ``key``:
    column=value for each column. ``at``: a time, or how long ago."""

    target: str
    event: str | None = None
    key: Sequence[str] = ()
    at: str | None = None


@dataclass(frozen=True, slots=True)
class KnownApp:
    """An app whose rules are known. ``history``: of its snapshot."""

    kafka: KafkaSettings
    app: ConsoleApp
    history: RuleHistory


def explain(known: KnownApp, question: Question, scan: int, rule: Rule | None = None) -> Json:
    """Return an explanation. ``scan``: the most records of a topic that it reads. ``rule``: the version to explain
    instead of the published one. ``ProblemError`` naming what is missing, if the question cannot be answered."""
    from headgate.explain.answer import answer

    if question.event is not None:
        _check_topic(known, question, rule)
    try:
        with _written(rule) as file:
            return as_json(answer(_query(known, question, scan, file)))
    except (InputError, RuleSetError) as error:
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None


def _check_topic(known: KnownApp, question: Question, rule: Rule | None) -> None:
    """Refuse an event of a topic that the rule does not read: the console reads with its own login, for everybody who
    may see the app."""
    name, _, number = question.target.partition("@")
    documents = known.history.documents
    if rule is None and name not in {*(of for of, _ in documents), *(of for of, _ in known.history.rules.rules)}:
        return  # the explanation says so, and which names are near
    versions = [one for (of, version), one in documents.items() if of == name and number in ("", str(version))]
    topics = read_formats(known.app.settings).topics
    read = {topics.get(one, one) for version in ([rule] if rule else versions) for one in stream_names(version.on)}
    topic = (question.event or "").partition(":")[0]
    if topic not in read:
        of = f"{question.target} reads {', '.join(sorted(read)) or 'none'} in app {known.app.name}"
        detail = f"event: topic {topic}: {of}; other topics are those of the app's settings file (--app-settings)"
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, detail)


@contextmanager
def _written(rule: Rule | None) -> Iterator[Path | None]:
    """Yield a file with the rule, as long as the context lasts; None without one."""
    if rule is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
        file = Path(folder) / "rule.yaml"
        file.write_bytes(canonical_json(rule))
        yield file


def _query(known: KnownApp, question: Question, scan: int, rules: Path | None) -> ExplainQuery:
    return ExplainQuery(
        target=question.target,
        event=question.event,
        event_json=None,
        key=tuple(question.key),
        at=question.at,
        rules=rules,
        streams=known.app.streams,
        lists=None,
        topics=(),
        login=KnownLogin(known.kafka),
        app=known.app.name,
        scan=scan,
        now_ms=int(time.time() * 1000),
        formats=read_formats(known.app.settings),
        history=known.history,
    )
