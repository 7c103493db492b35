"""One seed from start to end: a first start, trouble, then a calm in which everything has to come to its end."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.status import RESTING, Phase
from headgate_operator.runtime.reconcile_once import reconcile_once
from tests.harness.operator import laws, people
from tests.harness.operator.cluster import App, Cluster, Snapshot
from tests.harness.operator.driver import Image
from tests.harness.operator.operators import Operator, ReconcileOnce

_TROUBLE_STEPS = 160
_CALM_STEPS = 900
_QUIET = 20


@dataclass
class Faults:
    """What is switched off, to see that a law notices. Only tests of the tests use it."""

    reconcile: ReconcileOnce = reconcile_once
    forgets: set[str] = field(default_factory=set)


@dataclass
class Schedule:
    """``broken``: the laws that were, in words; empty is good."""

    seed: int
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        desired = Desired.of("shop", "rules", "0a1b2c3d", 1, people.first_spec(rng))
        self.cluster = Cluster(rng, App(desired), images={"sim:0": Image("sim:0", live=rng.random() < 0.5)})
        self.history: deque[Snapshot] = deque(maxlen=6)
        self.operators = [self._operator(), self._operator()]
        self.nested = False
        self.trace: list[str] = []

    def _operator(self) -> Operator:
        made = Operator(self.cluster, self.rng, self.history, self._meanwhile)
        made.reconcile, made.forgets = self.faults.reconcile, self.faults.forgets
        made.start()
        return made

    def _meanwhile(self) -> None:
        """Between two calls of one operator, others get on."""
        if not self.nested:
            self.nested = True
            try:
                self._pods()
                if self.rng.random() < 0.3 and len(self.operators) > 1:
                    self._operate(self.rng.choice(self.operators))
            finally:
                self.nested = False

    def run(self) -> list[str]:
        """The laws that were broken."""
        deaths = self.rng.choice((0.0, 0.02, 0.1))
        for operator in self.operators:
            operator.deaths = deaths
        trouble = self.rng.choice((0.02, 0.06, 0.15))
        for _ in range(_TROUBLE_STEPS):
            self._step(trouble)
            if self.cluster.spoilt:
                return self.cluster.spoilt
        self._calm()
        return [*self.cluster.spoilt, *laws.at_the_end(self.cluster)]

    def _step(self, trouble: float) -> None:
        rng = self.rng
        self.cluster.now_ms += rng.choice((200, 1_000, 1_000, 5_000))
        if rng.random() < 0.3:
            self.history.append(self.cluster.snapshot())
        if rng.random() < trouble:
            self._do()
        self._pods()
        first, second = self.operators
        self._operate(first if rng.random() < 0.9 else second)
        if rng.random() < 0.01:
            rng.choice(self.operators).start()
        if rng.random() < 0.02:
            self.operators.reverse()  # another one leads, and the one before does not know yet

    def _do(self) -> None:
        doings: tuple[Callable[[Cluster, random.Random], None], ...] = tuple(doing for doing, _ in people.DOINGS)
        doing = self.rng.choices(doings, [weight for _, weight in people.DOINGS])[0]
        doing(self.cluster, self.rng)
        if _TRACE:
            print(f"{self.cluster.now_ms} -- {doing.__name__}")

    def _pods(self) -> None:
        for pod in list(self.cluster.pods.values()):
            if self.rng.random() < 0.7:
                self.cluster.tick(pod)
        for driver in self.cluster.processes:
            if not driver.ended and self.rng.random() < 0.2:
                driver.tick(self.cluster.now_ms)  # also of pods that the API server has forgotten
        if self.rng.random() < 0.3:
            self.cluster.work_off_collectors()

    def _operate(self, operator: Operator) -> None:
        if self.rng.random() < 0.7:
            operator.hear()
        operator.work()
        if _TRACE:
            self._say()

    def _say(self) -> None:
        status = self.cluster.app.status
        pods = [
            f"{p.name[-2:]}:{p.image.name}:{p.image.fault}:{p.driver.phase if p.driver else '-'}"
            f"{'+' if p.finished else ''}{'x' if p.deleting_since else ''}"
            for p in self.cluster.pods.values()
        ]
        owner = status.owner and status.owner.name
        line = f"{status.phase.value} owner={owner} {status.checkpoint} {status.pending_command} {pods}"
        if not self.trace or self.trace[-1] != line:
            self.trace.append(line)
            print(self.cluster.now_ms, line)

    def _calm(self) -> None:
        """Nodes come back or are removed, people leave it alone, one operator lives and hears everything."""
        operator = self.operators[0]
        operator.deaths = 0.0
        self.operators = [operator]
        quiet = 0
        for step in range(_CALM_STEPS):
            self.cluster.now_ms += 2_000
            if step % 40 == 0:
                people.node_returns(self.cluster, self.rng)
            self._pods()
            operator.resync()
            operator.work()
            if _TRACE:
                self._say()
            quiet = quiet + 1 if self._rests() else 0
            if self.cluster.app.gone or quiet > _QUIET:
                return

    def _rests(self) -> bool:
        status = self.cluster.app.status
        if status.pending_command is not None or status.garbage_collection is not None:
            return False
        return status.phase in RESTING or status.stable is None or status.phase is Phase.RESTARTING


_TRACE = bool(os.environ.get("HEADGATE_TRACE"))
