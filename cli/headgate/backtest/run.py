"""Runs a back-test: reads the rules, the versions to compare with and the events, and returns the result."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.backtest.sources import TopicRange, count_events, file_batches, files_by_stream, topic_batches
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.records.formats import ALL_JSON, RecordFormats
from headgate.records.inputs import find_input
from headgate.rules.bundle import RuleBundle, read_bundle, shipped_rules
from headgate.rules.history import read_history
from headgate.rules.publish import AppTopics
from headgate.time_arguments import parse_offset, parse_time
from rulecore.backtest.backtest import AlertCallback, Backtest, BacktestReport, BacktestSide, EventBatch
from rulecore.backtest.decisions import policy_for
from rulecore.compile.rule import CompiledRule
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.published_feature import PublishedFeature
from rulecore.lists.store import ListStore
from rulecore.ruleset.history import RuleHistory
from rulecore.streams import RuleInput, stream_names
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe
from streamcore.offsets import PARTITIONS_PER_TOPIC, TopicPartition
from streamcore.schema import UNION, StreamSchema

#: Shows a progress bar with a title for a number of events; yields a function that takes the number done.
Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, slots=True)
class BacktestRequest:
    """The arguments of ``headgate rules backtest``. ``now_ms``: the time of the command."""

    paths: tuple[Path, ...]
    streams: Path | None
    lists: Path | None
    stream: str | None
    compare: str | None
    max_out_of_orderness_ms: int
    limit: int | None
    parquet: tuple[str, ...]
    start: str | None
    end: str
    topics: tuple[str, ...]
    login: KafkaLogin
    app: str
    now_ms: int
    formats: RecordFormats = ALL_JSON
    summed: str | None = None

    @property
    def kafka(self) -> KafkaSettings:
        """The Kafka of the events and the app."""
        return self.login.settings("headgate-backtest")


@dataclass(frozen=True, slots=True)
class EventSource:
    """The events of a back-test. ``origin``: where they are, for users; ``total``: their number; ``batches``: pairs of
    the number of records read and the events in them."""

    origin: str
    total: int
    partitions: Sequence[int]
    batches: Iterator[tuple[int, EventBatch]]


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """A finished back-test. ``against``: the subject of the comparison, None without one. ``notes``: for users.
    ``side``: what the other side of the comparison is: LIVE, or the FILE of ``--compare``."""

    source: str
    stream: str
    against: str | None
    report: BacktestReport
    seconds: float
    notes: tuple[str, ...]
    side: str = "LIVE"


def run(
    request: BacktestRequest,
    progress: Progress,
    alerts: AlertCallback | None = None,
    decisions: AlertCallback | None = None,
) -> BacktestResult:
    """Read the rules, read the events, count. ``InputError`` and ``RuleError`` name the input that does not fit."""
    published = _PublishedRules(request)
    bundle = _read_rules(request, list(request.paths) or [shipped_rules(request.app)], published)
    if bundle.problems:
        raise InputError("rules with problems:\n" + "\n".join(p.render() for p in bundle.problems))
    on = _stream(bundle, request.stream)
    source = find_input(on, bundle.streams, request.topics, request.formats)
    rules = tuple(rule for rule in bundle.rules if rule.rule.on == on)
    lists = bundle.list_store(published.lists)
    against, others, policies = _comparison_rules(request, on, rules, published)
    new, notes = _with_support(rules, bundle.rules, published)
    live, more = _with_support(others, (), published) if against is not None else (None, ())
    new = replace(new, policy=policy_for([one.policy for one in bundle.policies], on), on_decision=decisions)
    live = None if live is None else replace(live, policy=policy_for(policies, on))
    if request.summed is not None and new.policy is None:
        raise InputError("--sum: adds up a column by outcome; name the file of a decision policy of the stream, too")
    if decisions is not None and new.policy is None:
        raise InputError("--decisions: there are none; name the file of a decision policy of the stream, too")
    events = _events(request, source)
    began = time.monotonic()
    job = Backtest(
        source,
        new,
        live,
        lists=lists,
        max_out_of_orderness_ms=request.max_out_of_orderness_ms,
        partitions=events.partitions,
        on_alert=alerts,
        summed=request.summed,
    )
    with progress(f"backtest {events.origin}", events.total) as on_progress:
        done = 0
        for count, batch in events.batches:
            job.step(batch)
            done += count
            on_progress(done)
    seconds = time.monotonic() - began
    said = tuple(dict.fromkeys([*notes, *more]))
    side = "LIVE" if request.compare in (None, "live") else "FILE"
    return BacktestResult(events.origin, on, against, job.report(), seconds, said, side)


def _stream(bundle: RuleBundle, wanted: str | None) -> str:
    """Return the stream, or the union of streams, of the rules to run."""
    on = sorted({rule.rule.on for rule in bundle.rules})
    if not on:
        raise InputError("there are no rules among PATHS; a decision policy alone decides nothing: name its rules, too")
    if wanted is None and len(on) > 1:
        raise InputError(f"the rules are on {', '.join(on)}; name the stream of the events with --stream")
    names = sorted(stream_names(wanted or on[0]))
    for name in names:
        if name not in bundle.streams:
            raise InputError(
                f"stream {name!r}: no such stream; there are {', '.join(sorted(bundle.streams))}; see --streams"
            )
    found = UNION.join(names)
    if found not in on:
        raise InputError(f"no rule is on stream {found}; the rules are on {', '.join(on)}")
    return found


# --- other versions --------------------------------------------------------------------------------------------------


class _PublishedRules:
    """The app's published rules, read at the first use."""

    def __init__(self, request: BacktestRequest) -> None:
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
    def _history(self) -> RuleHistory | None:
        request = self._request
        return read_history(request.kafka, self._topics, request.streams, request.now_ms) if self.there else None

    @property
    def lists(self) -> ListStore:
        """The lists with their present content."""
        return ListStore.empty() if self._history is None else self._history.lists

    @property
    def streams(self) -> Mapping[str, StreamSchema] | None:
        """The streams of the files, with those that were published while the app ran; None if no app is asked."""
        return None if self._history is None else self._history.rules.streams

    @property
    def policies(self) -> Sequence[DecisionPolicy]:
        """The decision policies, each once."""
        found = {} if self._history is None else self._history.rules.policies.by_stream
        return [*{one.name: one.policy for one in found.values()}.values()]

    @property
    def features(self) -> Mapping[str, PublishedFeature]:
        """The published features by name."""
        return {} if self._history is None else self._history.rules.features.documents

    def rule(self, rule_id: str) -> CompiledRule | None:
        """Return the live version of a rule; None if there is none."""
        return None if self._history is None else self._history.rules.live(rule_id)


def _read_rules(request: BacktestRequest, paths: Sequence[Path], published: _PublishedRules) -> RuleBundle:
    lists, schemas = published.lists.types(), published.streams
    known = published.features
    return read_bundle(
        paths, request.streams, request.lists, lists, schemas=schemas, published=known, is_named_first=True
    )


def _comparison_rules(
    request: BacktestRequest, on: str, rules: Sequence[CompiledRule], published: _PublishedRules
) -> tuple[str | None, tuple[CompiledRule, ...], Sequence[DecisionPolicy]]:
    """Return the label, the rules and the decision policies to compare with."""
    if request.compare == "none" or (request.compare is None and not (request.start and published.there)):
        return None, (), ()
    if request.compare in (None, "live"):
        if not published.there:
            raise InputError(f"--compare live: no topic {published.topic} at {request.kafka.bootstrap}; correct --app")
        found = [published.rule(rule.rule.id) for rule in rules]
        live = tuple(one for one in found if one is not None and one.rule.on == on)
        return f"the live versions of app {request.app}", live, published.policies
    path = Path(request.compare)
    bundle = _read_rules(request, [path], published)
    if bundle.problems:
        raise InputError("--compare: rules with problems:\n" + "\n".join(p.render() for p in bundle.problems))
    # a file with a policy alone: the same rules with another policy
    others = tuple(rule for rule in bundle.rules if rule.rule.on == on) if bundle.rules else tuple(rules)
    return str(path), others, [one.policy for one in bundle.policies]


def _with_support(
    rules: tuple[CompiledRule, ...], others: Sequence[CompiledRule], published: _PublishedRules
) -> tuple[BacktestSide, tuple[str, ...]]:
    """Return the rules with those whose scores they add: from the same files, else the live ones."""
    own = {rule.rule.id for rule in rules}
    wanted = sorted({name for rule in rules if rule.rule.score is not None for name in rule.rule.score.of} - own)
    in_files = {rule.rule.id: rule for rule in others}
    found = {name: in_files.get(name) or published.rule(name) for name in wanted}
    missing = [name for name, rule in found.items() if rule is None]
    notes = (f"scores of {', '.join(missing)} count for nothing: no such rule is in the files",) if missing else ()
    return BacktestSide(rules, tuple(rule for rule in found.values() if rule is not None)), notes


# --- events ----------------------------------------------------------------------------------------------------------


def _events(request: BacktestRequest, source: RuleInput) -> EventSource:
    if request.parquet:
        files = files_by_stream(request.parquet, source)
        rows = sum(map(count_events, files.values()))
        total = min(rows, request.limit or rows)
        partitions = [number * PARTITIONS_PER_TOPIC for number in range(len(source.streams))]
        batches = file_batches(files, source, request.now_ms, request.limit)
        return EventSource(", ".join(request.parquet), total, partitions, batches)
    topics = [*dict.fromkeys(source.topics)]
    found = _range(request, topics)
    found = found if request.limit is None else found.first(request.limit)
    batches = topic_batches(request.kafka, found, source, request.now_ms, request.formats)
    origin = f"{'topics' if len(topics) > 1 else 'topic'} {', '.join(topics)}"
    return EventSource(origin, found.records, found.partitions(source), batches)


def _range(request: BacktestRequest, topics: Sequence[str]) -> TopicRange:
    for topic in topics:
        if not describe(request.kafka, [topic]):
            raise InputError(f"no topic {topic} at {request.kafka.bootstrap}; correct --topic or --bootstrap")
    ends = KafkaPartitionOffsets(request.kafka, topics)
    first, last = ends.earliest(), ends.latest()

    def bound(text: str, option: str) -> Mapping[TopicPartition, int]:
        offset = parse_offset(text)
        if offset is not None:
            return dict.fromkeys(last, offset)
        return last if text == "now" else ends.for_timestamp(parse_time(text, request.now_ms, option))

    assert request.start is not None
    start, end = bound(request.start, "--from"), bound(request.end, "--to")
    begin = {place: min(max(start[place], first[place]), last[place]) for place in last}
    stop = {place: max(begin[place], min(end[place], last[place])) for place in last}
    return TopicRange(begin, stop)
