"""The schedule of a seed: a first start, a time of faults, and one without them in which every operation must end."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.status import RESTING, Phase
from headgate_operator.runtime.reconcile_once import reconcile_once
from tests.harness.operator import invariants, user_actions
from tests.harness.operator.cluster import App, Cluster, Snapshot
from tests.harness.operator.driver import Image
from tests.harness.operator.operators import Operator, ReconcileOnce

_FAULT_STEPS = 160
_SETTLE_STEPS = 900
_QUIET = 20


@dataclass
class Faults:
    """Protections that are switched off, to test that an invariant is violated then."""

    reconcile: ReconcileOnce = reconcile_once
    disabled: set[str] = field(default_factory=set)


@dataclass
class Schedule:
    """A run of the simulation. ``faults``: protections that are switched off."""

    seed: int
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        desired = Desired.of("shop", "rules", "0a1b2c3d", 1, user_actions.first_spec(rng))
        self.cluster = Cluster(rng, App(desired), images={"sim:0": Image("sim:0", live=rng.random() < 0.5)})
        self.history: deque[Snapshot] = deque(maxlen=6)
        self.operators = [self._operator(), self._operator()]
        self.nested = False
        self.trace: list[str] = []

    def _operator(self) -> Operator:
        made = Operator(self.cluster, self.rng, self.history, self._meanwhile)
        made.reconcile, made.disabled = self.faults.reconcile, self.faults.disabled
        made.start()
        return made

    def _meanwhile(self) -> None:
        """Let pods and other operators work between two calls of one operator."""
        if not self.nested:
            self.nested = True
            try:
                self._tick_pods()
                if self.rng.random() < 0.3 and len(self.operators) > 1:
                    self._run_operator(self.rng.choice(self.operators))
            finally:
                self.nested = False

    def run(self) -> list[str]:
        """Run the schedule; return the violated invariants."""
        crash_probability = self.rng.choice((0.0, 0.02, 0.1))
        for operator in self.operators:
            operator.crash_probability = crash_probability
        fault_probability = self.rng.choice((0.02, 0.06, 0.15))
        for _ in range(_FAULT_STEPS):
            self._step(fault_probability)
            if self.cluster.violations:
                return self.cluster.violations
        self._settle()
        return [*self.cluster.violations, *invariants.final_violations(self.cluster)]

    def _step(self, fault_probability: float) -> None:
        rng = self.rng
        self.cluster.now_ms += rng.choice((200, 1_000, 1_000, 5_000))
        if rng.random() < 0.3:
            self.history.append(self.cluster.snapshot())
        if rng.random() < fault_probability:
            self._act()
        self._tick_pods()
        first, second = self.operators
        self._run_operator(first if rng.random() < 0.9 else second)
        if rng.random() < 0.01:
            rng.choice(self.operators).start()
        if rng.random() < 0.02:
            self.operators.reverse()  # another one leads, and the one before does not know yet

    def _act(self) -> None:
        actions: tuple[Callable[[Cluster, random.Random], None], ...] = tuple(
            action for action, _ in user_actions.ACTIONS
        )
        action = self.rng.choices(actions, [weight for _, weight in user_actions.ACTIONS])[0]
        action(self.cluster, self.rng)
        if _TRACE:
            print(f"{self.cluster.now_ms} -- {action.__name__}")

    def _tick_pods(self) -> None:
        for pod in list(self.cluster.pods.values()):
            if self.rng.random() < 0.7:
                self.cluster.tick(pod)
        for driver in self.cluster.processes:
            if not driver.ended and self.rng.random() < 0.2:
                driver.tick(self.cluster.now_ms)  # also of pods that the API server has forgotten
        if self.rng.random() < 0.3:
            self.cluster.run_collectors()

    def _run_operator(self, operator: Operator) -> None:
        if self.rng.random() < 0.7:
            operator.receive_watches()
        operator.run_once()
        if _TRACE:
            self._print_state()

    def _print_state(self) -> None:
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

    def _settle(self) -> None:
        """Run without faults and edits: nodes come back or are removed, and one operator sees every change."""
        operator = self.operators[0]
        operator.crash_probability = 0.0
        self.operators = [operator]
        quiet = 0
        for step in range(_SETTLE_STEPS):
            self.cluster.now_ms += 2_000
            if step % 40 == 0:
                user_actions.restore_node(self.cluster, self.rng)
            self._tick_pods()
            operator.resync()
            operator.run_once()
            if _TRACE:
                self._print_state()
            quiet = quiet + 1 if self._is_at_rest() else 0
            if self.cluster.app.gone or quiet > _QUIET:
                return

    def _is_at_rest(self) -> bool:
        status = self.cluster.app.status
        if status.pending_command is not None or status.garbage_collection is not None:
            return False
        return status.phase in RESTING or status.stable is None or status.phase is Phase.RESTARTING


_TRACE = bool(os.environ.get("HEADGATE_TRACE"))
