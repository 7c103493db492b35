"""The faults of a round and their times: an endless list that depends on the seed."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


class Fault(enum.StrEnum):
    """A fault by what it does (kill is SIGKILL, pause is SIGSTOP) and to whom."""

    KILL_DRIVER = "kill driver"
    KILL_SESSION = "kill driver, JVM and workers"
    KILL_JVM = "kill JVM"
    KILL_WORKER = "kill a worker"
    KILL_WORKERS = "kill all workers"
    PAUSE_DRIVER = "pause driver"
    PAUSE_SESSION = "pause driver, JVM and workers"
    PAUSE_JVM = "pause JVM"
    PAUSE_WORKER = "pause a worker"
    PAUSE_WORKERS = "pause all workers"
    KILL_BROKER = "kill broker"
    PAUSE_BROKER = "pause broker"
    KILL_STORE = "kill store"
    PAUSE_STORE = "pause store"
    FULL_DISK = "full disk"
    CLOCK_JUMP = "clock jump"


#: How often each comes, relative to the others. A *store* is the database or the index that a service writes to.
_WEIGHTS: Mapping[Fault, int] = {
    Fault.KILL_DRIVER: 10,
    Fault.KILL_SESSION: 6,
    Fault.KILL_JVM: 6,
    Fault.KILL_WORKER: 14,
    Fault.KILL_WORKERS: 8,
    Fault.PAUSE_DRIVER: 10,
    Fault.PAUSE_SESSION: 4,
    Fault.PAUSE_JVM: 10,
    Fault.PAUSE_WORKER: 10,
    Fault.PAUSE_WORKERS: 6,
    Fault.KILL_BROKER: 3,
    Fault.PAUSE_BROKER: 5,
    Fault.KILL_STORE: 6,
    Fault.PAUSE_STORE: 6,
    Fault.FULL_DISK: 3,
    Fault.CLOCK_JUMP: 3,
}
#: By how much the driver's clock is wrong after a jump; the true time is one of them.
CLOCKS_MS = (3_600_000, 0, -120_000, 86_400_000, 0, -3_600_000)
#: A pause is mostly short; one in so many is long enough for time-outs of Kafka and of the lease.
_LONG_EVERY = 12


@dataclass(frozen=True, slots=True)
class Step:
    """``after_s``: since the last fault or its recovery. ``for_s``: how long something is paused, away or full.

    ``wait_for_cut``: the next fault waits for the first cut after this one; otherwise it may meet a start. ``choice``
    decides where there is one.
    """

    fault: Fault
    after_s: float
    for_s: float
    wait_for_cut: bool
    choice: int


def schedule(seed: str, possible: frozenset[Fault]) -> Iterator[Step]:
    """Yield steps without an end, of the faults that are possible here."""
    chance = random.Random(f"{seed}/faults")
    faults = [fault for fault in _WEIGHTS if fault in possible]
    weights = [_WEIGHTS[fault] for fault in faults]
    while True:
        fault = chance.choices(faults, weights)[0]
        long = fault.value.startswith("pause") and chance.randrange(_LONG_EVERY) == 0
        yield Step(
            fault,
            chance.uniform(0.2, 3.0),
            chance.uniform(20, 45) if long else chance.uniform(0.5, 6.0),
            chance.random() < 0.75,
            chance.randrange(1_000),
        )
