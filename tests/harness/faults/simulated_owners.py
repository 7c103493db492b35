"""Owners of one app on copies of its checkpoint, suspended and resumed by seed, against a broker in memory.

The writer, the checkpoint and its offset log are the real ones. Simulated are the broker (one transactional id, one
topic, the markers) and time. Each owner runs in a thread of its own, and only one thread runs at a time: at every step
of the protocol and at every request to the broker, the owner hands over to the schedule, which draws what happens next.

The schedule: run an owner to its next step; suspend it for up to two transaction time-outs; copy its checkpoint and
start a second owner there, as a volume that is restored from a snapshot; kill an owner; start a dead one again.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced, Retryable, StreamError
from streamcore.kafka import exactly_once
from streamcore.kafka.delivery import CommitStep, DeliverySettings, OutRecord, OutRecords, WriterHooks
from streamcore.kafka.markers import Marker
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import StreamOffsets
from streamcore.storage.atomic_files import make_folder, write_text

APP = AppIdentity("shop", 1)
_TOPIC = ("orders", 0)
_TIMEOUT_MS = 60_000
_DELIVERY = DeliverySettings(transaction_timeout_ms=_TIMEOUT_MS, recovery_ms=120_000, backoff_ms=1_000)
_MAX_OWNERS = 4


class _KilledError(BaseException):
    """The process is gone: no code of it runs any more."""


@dataclass
class SimulatedBroker:
    """The broker's side of transactions of one writer. ``output``: the values of committed records, in order."""

    now_s: float = 0.0
    epoch: int = 0
    begun_s: float | None = None
    output: list[int] = field(default_factory=list)
    marker: Marker | None = None

    def expire(self) -> None:
        """Abort a transaction that is older than its time-out, and fence its producer, as a broker does."""
        if self.begun_s is not None and self.now_s - self.begun_s > _TIMEOUT_MS / 1000:
            self.begun_s = None
            self.epoch += 1


class _Producer:
    """A producer of one owner. Takes the place of ``TransactionalProducer`` and of the client in it."""

    def __init__(self, owner: Owner) -> None:
        self._owner, self._broker = owner, owner.schedule.broker
        self._broker.epoch += 1
        self._broker.begun_s = None
        self._epoch = self._broker.epoch
        self._records: list[int] = []
        self._marker: Marker | None = None
        self.producer = self

    @contextmanager
    def naming_errors(self, _: str) -> Iterator[None]:
        yield

    def marker_partition(self, *_: object) -> int:
        return 0

    def was_cut_off(self) -> bool:
        return False

    def begin_transaction(self) -> None:
        self._records, self._marker = [], None

    def produce(self, rows: Sequence[OutRecord | OutRecords], _: object) -> None:
        self._owner.step()
        self._check()
        self._broker.begun_s = self._broker.now_s
        self._records = [int(row.value or b"") for row in rows if isinstance(row, OutRecord)]

    def produce_marker(self, _: str, __: int, marker: Marker) -> None:
        self._marker = marker

    def commit_transaction(self, _: float) -> None:
        self._owner.step()
        self._check()
        answer = self._owner.schedule.random.random()
        if answer < 0.05:
            raise Retryable("the request was lost")
        self._broker.begun_s = None
        self._broker.output += self._records
        self._broker.marker = self._marker
        if answer < 0.1:
            raise Retryable("the answer was lost")

    def end(self, *, abort: bool = False) -> None:
        if abort and self._epoch == self._broker.epoch:
            self._broker.begun_s = None

    def _check(self) -> None:
        self._broker.expire()
        if self._epoch != self._broker.epoch:
            raise Fenced("another producer has this transactional id")


class Owner:
    """A process that runs the app on the checkpoint in ``folder``, in a thread of its own."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule, self.folder = schedule, folder
        self.root = CheckpointRoot(folder)
        self.suspended_until_s = 0.0
        self.ended: BaseException | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Run the owner to its next step."""
        self._go.release()
        self._back.acquire()
        if self.ended is not None and not isinstance(self.ended, StreamError | _KilledError):
            raise self.ended

    def kill(self) -> None:
        """End the owner where it stands."""
        if self.ended is None:
            self._killed = True
            self.resume()

    def step(self, _: CommitStep | None = None) -> None:
        """Hand over to the schedule, and continue when it resumes this owner."""
        self._back.release()
        self._go.acquire()
        if self._killed:
            raise _KilledError

    def _main(self) -> None:
        self._go.acquire()
        try:
            if self._killed:
                raise _KilledError
            self._run()
        except BaseException as error:  # an error of the test itself is raised where the owner was resumed
            self.ended = error
        finally:
            self._back.release()

    def _run(self) -> None:
        self.root.initialise(APP)
        hooks = WriterHooks(on_step=self.step, check_history=lambda cut: self.root.check_history(cut, 1))
        writer = self.schedule.writer(self, hooks)
        self.root.check_marker(writer.open(), 1, exactly_once.MARKER_EVERY)
        while True:
            last = self.root.last_committed()
            batch = 0 if last is None else last + 1
            bounds = self.root.offsets.read(batch) or self._plan(batch)
            self.step()
            offsets = range(bounds.start.offsets[_TOPIC], bounds.end.offsets[_TOPIC])
            writer.commit(bounds.id(batch), [OutRecord("out", None, b"%d" % offset) for offset in offsets])
            write_text(self.root.spark / "commits" / str(batch), "v1\n{}")

    def _plan(self, batch: int) -> CutBounds:
        before = self.root.offsets.read(batch - 1)
        start = StreamOffsets(CutClock(), {_TOPIC: 0}) if before is None else before.end
        count = self.schedule.random.choice((0, 1, 1, 3))
        end = StreamOffsets(CutClock.at(round(self.schedule.broker.now_s)), {_TOPIC: start.offsets[_TOPIC] + count})
        bounds = CutBounds(start, end, "" if before is None else before.id(batch - 1).digest)
        make_folder(self.root.spark / "offsets")
        make_folder(self.root.spark / "commits")
        write_text(self.root.spark / "metadata", "{}")
        write_text(self.root.spark / "offsets" / str(batch), "v1\n{}")
        self.root.offsets.write(batch, bounds)
        return bounds


#: Builds the writer of an owner.
MakeWriter = Callable[..., exactly_once.ExactlyOnceWriter]


class Schedule:
    """What happens to the owners, drawn from ``seed``. ``kind``: the class of their writers."""

    def __init__(self, seed: int, folder: Path, kind: MakeWriter = exactly_once.ExactlyOnceWriter) -> None:
        self.random = random.Random(seed)
        self.broker = SimulatedBroker()
        self._folder, self._kind = folder, kind
        self.owners = [Owner(self, folder / "0")]
        self.running = self.owners[0]

    def writer(self, owner: Owner, hooks: WriterHooks) -> exactly_once.ExactlyOnceWriter:
        """Build the writer of an owner."""
        return self._kind(KafkaSettings("nowhere:1"), WriterId("shop", 1), "markers", delivery=_DELIVERY, hooks=hooks)

    def run(self, steps: int) -> None:
        """Draw so many events."""
        for _ in range(steps):
            self._draw()

    def settle(self) -> list[Owner]:
        """Kill every owner, start each checkpoint once more, one after the other, and let it run. Return those that
        commit a batch."""
        able = []
        for number in [one.folder for one in self.owners]:
            for owner in self.owners:
                owner.kill()
            owner = Owner(self, number)
            before = owner.root.last_committed()
            for _ in range(60):
                if owner.ended is None:
                    self._resume(owner)
            if owner.ended is None and owner.root.last_committed() != before:
                able.append(owner)
            owner.kill()
        return able

    def _draw(self) -> None:
        alive = [owner for owner in self.owners if owner.ended is None]
        awake = [owner for owner in alive if owner.suspended_until_s <= self.broker.now_s]
        event = self.random.random()
        if not awake:
            self.broker.now_s += 10
        elif event < 0.90:
            self.broker.now_s += self.random.choice((0.0, 0.1, 1.0))
            self._resume(self.random.choice(awake))
        elif event < 0.95:
            self.random.choice(awake).suspended_until_s = self.broker.now_s + self.random.uniform(
                1, 2 * _TIMEOUT_MS / 1000
            )
        elif event < 0.97 and len(self.owners) < _MAX_OWNERS:
            self._copy(self.random.choice(self.owners))
        elif event < 0.985:
            self.random.choice(alive).kill()
        if not alive or event >= 0.985:
            self._restart()

    def _resume(self, owner: Owner) -> None:
        self.running = owner
        owner.resume()

    def _copy(self, owner: Owner) -> None:
        folder = self._folder / str(len(self.owners))
        if owner.root.is_used:
            shutil.copytree(owner.folder, folder)
            self.owners.append(Owner(self, folder))

    def _restart(self) -> None:
        dead = [number for number, owner in enumerate(self.owners) if owner.ended is not None]
        if dead:
            number = self.random.choice(dead)
            self.owners[number] = Owner(self, self.owners[number].folder)


@contextmanager
def simulated_broker(schedule: Callable[[], Schedule], patch: Any) -> Iterator[None]:
    """Let the writer's module use the schedule's broker and its time. ``patch``: pytest's ``monkeypatch``."""

    class Time:
        """The time of the schedule. A pause is a step."""

        @staticmethod
        def monotonic() -> float:
            return schedule().broker.now_s

        perf_counter = monotonic

        @staticmethod
        def sleep(_: float) -> None:
            schedule().running.step()

    class Producers:
        """Fences, in the place of ``TransactionalProducer``."""

        @staticmethod
        def fence(*_: object) -> _Producer:
            schedule().running.step()
            schedule().broker.expire()
            return _Producer(schedule().running)

    def marker(*_: object) -> Marker | None:
        schedule().running.step()
        return schedule().broker.marker

    patch.setattr(exactly_once, "time", Time)
    patch.setattr(exactly_once, "TransactionalProducer", Producers)
    patch.setattr(exactly_once, "end_hanging_transactions", lambda *_: [])
    patch.setattr(exactly_once, "read_marker", marker)
    patch.setattr(exactly_once, "read_stable_marker", marker)
    with suppress(_KilledError):
        yield
