"""Back-tests that run beside the pages: a version of a rule over past events of its topics, beside the live version.

Each runs in a thread; so many at once as the console's limits say, and each reads at most so many records. They are
kept in memory, the newest ones, and end with the console.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import orjson

from headgate.backtest.sources import TopicRange, topic_batches
from headgate.records.formats import read_formats
from headgate.records.inputs import find_input
from headgate.time_arguments import parse_time
from headgate.web.problems import ProblemCode, ProblemError, not_found
from headgate.web.settings import ConsoleApp
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.comparison import VersionAlert, compare_alerts
from headgate.web.state.values import BacktestValue, ComparisonValue
from rulecore.backtest.backtest import Backtest, BacktestSide
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import Rule
from rulecore.streams import RuleInput
from streamcore.errors import StreamError
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.settings import KafkaSettings

_LOG = logging.getLogger(__name__)
_KEPT = 20
_STEP = 20_000  # records between two looks at the cancellation
_MOST_ALERTS = 200_000


@dataclass(frozen=True, slots=True)
class BacktestTask:
    """The input of a back-test. ``new``: the version to try; ``live``: the one beside it."""

    kafka: KafkaSettings
    app: ConsoleApp
    snapshot: Snapshot
    new: CompiledRule
    live: CompiledRule | None
    since: str
    most_records: int
    disorder_ms: int = 10_000


@dataclass(slots=True)
class BacktestJob:
    """A back-test that runs, or has run."""

    id: str
    task: BacktestTask
    state: str = "running"
    done: int = 0
    total: int = 0
    fault: str = ""
    events: int = 0
    rejected: int = 0
    cut: bool = False
    result: ComparisonValue | None = None
    began_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def rule(self) -> Rule:
        """The version that is tried."""
        return self.task.new.rule

    def value(self) -> BacktestValue:
        """Return its state as a value."""
        live = self.task.live
        return BacktestValue(
            id=self.id,
            rule=self.rule.id,
            version=self.rule.version,
            live=None if live is None else live.rule.version,
            since=self.task.since,
            state=self.state,
            done=self.done,
            total=self.total,
            seconds=round((self.ended_s or time.monotonic()) - self.began_s, 1),
            fault=self.fault,
            events=self.events,
            rejected=self.rejected,
            cut=self.cut,
            result=self.result,
        )


class BacktestJobs:
    """The back-tests of one app. Thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[str, BacktestJob] = {}
        self._lock = threading.Lock()

    def start(self, task: BacktestTask, place: AbstractContextManager[None]) -> BacktestJob:
        """Start a back-test. ``place``: is held while it runs; it refuses if none is free. ``ProblemError`` then, or if
        its range cannot be read."""
        try:
            source, wanted, cut = _range(task)
        except StreamError as error:
            raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None
        place.__enter__()
        job = BacktestJob(secrets.token_hex(6), task, total=wanted.records, cut=cut)
        with self._lock:
            self._jobs[job.id] = job
            for old in [*self._jobs][: max(0, len(self._jobs) - _KEPT)]:
                if self._jobs[old].state != "running":
                    del self._jobs[old]
        threading.Thread(target=self._run, args=(job, source, wanted, place), name="back-test", daemon=True).start()
        return job

    def find(self, name: str) -> BacktestJob:
        """Return a back-test. ``ProblemError`` if there is none of this id."""
        with self._lock:
            found = self._jobs.get(name)
        if found is None:
            raise not_found(f"no back-test {name}: the console keeps the newest {_KEPT}, until it ends")
        return found

    def of_rule(self, rule: str) -> list[BacktestValue]:
        """Return the back-tests of a rule, the newest first."""
        with self._lock:
            jobs = [*self._jobs.values()]
        return [job.value() for job in reversed(jobs) if job.rule.id == rule]

    def close(self) -> None:
        """Cancel all."""
        with self._lock:
            for job in self._jobs.values():
                job.cancelled.set()

    def _run(
        self, job: BacktestJob, source: RuleInput, wanted: TopicRange, place: AbstractContextManager[None]
    ) -> None:
        try:
            _compute(job, source, wanted)
            job.state = "cancelled" if job.cancelled.is_set() else "done"
        except StreamError as error:
            job.state, job.fault = "failed", str(error)
        except Exception as error:
            _LOG.exception("a back-test failed")
            job.state, job.fault = "failed", f"a fault of the console: {type(error).__name__}; its log has more"
        finally:
            job.ended_s = time.monotonic()
            place.__exit__(None, None, None)


def _range(task: BacktestTask) -> tuple[RuleInput, TopicRange, bool]:
    """Return the input, the range of its topics, and whether it is cut to the newest ``most_records``."""
    rules = task.snapshot.history.rules
    source = find_input(task.new.rule.on, rules.streams, (), read_formats(task.app.settings))
    ends = KafkaPartitionOffsets(task.kafka, [*dict.fromkeys(source.topics)])
    first, last = ends.earliest(), ends.latest()
    start = ends.for_timestamp(parse_time(task.since, int(time.time() * 1000), "since"))
    begin = {place: min(max(start.get(place, end), first[place]), end) for place, end in last.items()}
    share = max(1, task.most_records // max(1, len(last)))
    newest = {place: max(begin[place], end - share) for place, end in last.items()}
    return source, TopicRange(newest, last), newest != begin


def _compute(job: BacktestJob, source: RuleInput, wanted: TopicRange) -> None:
    task = job.task
    sides = [one for one in (task.new, task.live) if one is not None]
    found: list[list[bytes]] = [[] for _ in sides]
    lists, partitions = task.snapshot.history.lists, wanted.partitions(source)
    runs = [
        Backtest(
            source,
            BacktestSide((rule,), _signals(task.snapshot, rule)),
            lists=lists,
            max_out_of_orderness_ms=task.disorder_ms,
            partitions=partitions,
            on_alert=_collector(found[number]),
        )
        for number, rule in enumerate(sides)
    ]
    now_ms, formats = int(time.time() * 1000), read_formats(task.app.settings)
    for count, batch in topic_batches(task.kafka, wanted, source, now_ms, formats, _STEP):
        if job.cancelled.is_set():
            return
        for run in runs:
            run.step(batch)
        job.done += count
    job.events = runs[0].events
    job.rejected = sum(runs[0].report().dead_letters.values())
    compared = [[_alert(body, rule) for body in alerts] for alerts, rule in zip(found, sides, strict=True)]
    job.result = compare_alerts(compared[0], compared[1] if len(compared) > 1 else [])


def _collector(alerts: list[bytes]) -> Callable[[bytes], None]:
    def add(alert: bytes) -> None:
        if len(alerts) < _MOST_ALERTS:
            alerts.append(alert)

    return add


def _alert(body: bytes, rule: CompiledRule) -> VersionAlert:
    return VersionAlert.of(orjson.loads(body), fixed=rule.window is not None)


def _signals(snapshot: Snapshot, rule: CompiledRule) -> tuple[CompiledRule, ...]:
    """Return the live rules whose scores the rule adds."""
    of: Mapping[str, object] = {} if rule.rule.score is None else rule.rule.score.of
    return tuple(found for name in of if (found := snapshot.history.rules.live(name)) is not None)
