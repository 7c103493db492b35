"""Puts a back-test together: rules, versions to compare with, events; runs it and gives the result as a value."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from headgate.backtest_sources import Range, count_events, file_batches, parquet_files, topic_batches
from headgate.errors import InputError
from headgate.history import read_history
from headgate.login import Login
from headgate.moments import parse_offset, parse_time
from headgate.publishing import AppTopics
from headgate.rulebook import Book, read_book, shipped_rules
from rulecore.audit import History
from rulecore.backtest import AlertSink, Backtest, Batch, Report, Side
from rulecore.compiled import CompiledRule
from rulecore.lists.store import ListStore
from streamcore.kafka.ends import Ends
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe
from streamcore.position import Place
from streamcore.schema import StreamSchema

#: A bar with this title for so many events: hears how many are done.
Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class Request:
    """What the command was asked, with the time when it was asked."""

    paths: tuple[Path, ...]
    streams: Path | None
    lists: Path | None
    stream: str | None
    compare: str | None
    disorder_ms: int
    limit: int | None
    parquet: Path | None
    start: str | None
    end: str
    topic: str | None
    login: Login
    app: str
    now_ms: int

    @property
    def kafka(self) -> KafkaSettings:
        """How to reach it."""
        return self.login.settings("headgate-backtest")


@dataclass(frozen=True, slots=True)
class Events:
    """Where the events come from. ``of``: for people."""

    of: str
    topic: str
    total: int
    partitions: Sequence[int]
    batches: Iterator[tuple[int, Batch]]


@dataclass(frozen=True, slots=True)
class Result:
    """A back-test that was run. ``against``: what it was compared with, None for nothing. ``notes``: for people."""

    of: str
    stream: str
    against: str | None
    report: Report
    seconds: float
    notes: tuple[str, ...]


def run(request: Request, progress: Progress, alerts: AlertSink | None = None) -> Result:
    """Read the rules, read the events, count. ``InputError`` and ``RuleError`` say what does not fit."""
    published = _Published(request)
    book = _book(request, list(request.paths) or [shipped_rules(request.app)], published)
    if book.problems:
        raise InputError("rules that are not sound:\n" + "\n".join(p.render() for p in book.problems))
    schema = _stream(book, request.stream)
    rules = tuple(rule for rule in book.rules if rule.rule.on == schema.name)
    lists = book.list_store(published.lists)
    against, others = _others(request, schema, rules, published)
    new, notes = _with_support(rules, published)
    live, more = _with_support(others, published) if against is not None else (None, ())
    events = _events(request, schema)
    began = time.monotonic()
    job = Backtest(
        schema,
        events.topic,
        new,
        live,
        lists=lists,
        disorder_ms=request.disorder_ms,
        partitions=events.partitions,
        alerts=alerts,
    )
    with progress(f"backtest {events.of}", events.total) as told:
        done = 0
        for count, batch in events.batches:
            job.step(batch)
            done += count
            told(done)
    seconds = time.monotonic() - began
    return Result(events.of, schema.name, against, job.report(), seconds, tuple(dict.fromkeys([*notes, *more])))


def _stream(book: Book, wanted: str | None) -> StreamSchema:
    on = sorted({rule.rule.on for rule in book.rules})
    if wanted is None and len(on) > 1:
        raise InputError(f"the rules are on {', '.join(on)}; say with --stream whose events these are")
    name = wanted or on[0]
    if name not in book.streams:
        raise InputError(f"stream {name!r}: no such stream; there are {', '.join(sorted(book.streams))}; see --streams")
    if name not in on:
        raise InputError(f"no rule is on stream {name}; the rules are on {', '.join(on)}")
    return book.streams[name]


# --- other versions --------------------------------------------------------------------------------------------------


class _Published:
    """The app's rules, read when first asked for."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._topics = AppTopics(request.app)

    @property
    def topic(self) -> str:
        return self._topics.control

    @functools.cached_property
    def there(self) -> bool:
        """Whether this back-test reads from Kafka at all, and the app has been started there."""
        usable = self._request.start is not None or self._request.compare == "live"
        return usable and bool(describe(self._request.kafka, [self.topic]))

    @functools.cached_property
    def _history(self) -> History | None:
        request = self._request
        return read_history(request.kafka, self._topics, request.streams, request.now_ms) if self.there else None

    @property
    def lists(self) -> ListStore:
        """As they are now."""
        return ListStore.empty() if self._history is None else self._history.lists

    def rule(self, rule_id: str) -> CompiledRule | None:
        """The version that counts, or that is evaluated alone in shadow; None where there is none."""
        return None if self._history is None else self._history.rules.live(rule_id)


def _book(request: Request, paths: Sequence[Path], published: _Published) -> Book:
    return read_book(paths, request.streams, request.lists, published.lists.types())


def _others(
    request: Request, schema: StreamSchema, rules: Sequence[CompiledRule], published: _Published
) -> tuple[str | None, tuple[CompiledRule, ...]]:
    """What to compare with, and its rules."""
    if request.compare == "none" or (request.compare is None and not (request.start and published.there)):
        return None, ()
    if request.compare in (None, "live"):
        if not published.there:
            raise InputError(f"--compare live: no topic {published.topic} at {request.kafka.bootstrap}; correct --app")
        found = [published.rule(rule.rule.id) for rule in rules]
        live = tuple(one for one in found if one is not None and one.rule.on == schema.name)
        return f"the live versions of app {request.app}", live
    path = Path(request.compare)
    book = _book(request, [path], published)
    if book.problems:
        raise InputError("--compare: rules that are not sound:\n" + "\n".join(p.render() for p in book.problems))
    return str(path), tuple(rule for rule in book.rules if rule.rule.on == schema.name)


def _with_support(rules: tuple[CompiledRule, ...], published: _Published) -> tuple[Side, tuple[str, ...]]:
    """The rules with those whose scores they add: from among them, else the live ones."""
    own = {rule.rule.id for rule in rules}
    wanted = sorted({name for rule in rules if rule.rule.score is not None for name in rule.rule.score.of} - own)
    found = {name: published.rule(name) for name in wanted}
    missing = [name for name, rule in found.items() if rule is None]
    notes = (f"scores of {', '.join(missing)} count for nothing: no such rule is in the files",) if missing else ()
    return Side(rules, tuple(rule for rule in found.values() if rule is not None)), notes


# --- events ----------------------------------------------------------------------------------------------------------


def _events(request: Request, schema: StreamSchema) -> Events:
    topic = request.topic or schema.name
    if request.parquet is not None:
        files = parquet_files(request.parquet)
        rows = count_events(files)
        total = min(rows, request.limit or rows)
        return Events(
            str(request.parquet), topic, total, [0], file_batches(files, schema, request.now_ms, request.limit)
        )
    found = _range(request, topic)
    found = found if request.limit is None else found.first(request.limit)
    batches = topic_batches(request.kafka, found, schema, request.now_ms)
    return Events(f"topic {topic}", topic, found.records, found.partitions, batches)


def _range(request: Request, topic: str) -> Range:
    if not describe(request.kafka, [topic]):
        raise InputError(f"no topic {topic} at {request.kafka.bootstrap}; correct --topic or --bootstrap")
    ends = Ends(request.kafka, [topic])
    first, last = ends.first(), ends.last()

    def bound(text: str, option: str) -> Mapping[Place, int]:
        offset = parse_offset(text)
        if offset is not None:
            return dict.fromkeys(last, offset)
        return last if text == "now" else ends.at(parse_time(text, request.now_ms, option))

    assert request.start is not None
    start, end = bound(request.start, "--from"), bound(request.end, "--to")
    begin = {place: min(max(start[place], first[place]), last[place]) for place in last}
    stop = {place: max(begin[place], min(end[place], last[place])) for place in last}
    return Range(topic, begin, stop)
