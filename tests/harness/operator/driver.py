"""A model of a driver process that follows the contract, unless its image has a fault."""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass, field

from tests.harness.operator.store import Rejection, SavepointState, Store

#: Faults of an image; ``good`` is the most frequent.
FAULTS = (
    "good",
    "good",
    "good",
    "crashes-at-start",
    "hangs-at-start",
    "incompatible",
    "needs-decision",
    "does-not-verify",
    "crashes-at-promote",
    "hangs-at-promote",
    "crashes-soon",
    "stalls-soon",
    "stalls-and-hangs",
    "lags",
    "rejects-the-drain",
    "hangs-at-drain",
    "slow",
)

#: Ticks until a change of settings is applied or rejected: at once, or after the operator stopped waiting.
_CHANGE_TICKS = (1, 2, 5, 30, 60)


def hash_of(name: str) -> int:
    """Return a number that depends on the name only, unlike ``hash``."""
    return zlib.crc32(name.encode())


@dataclass(frozen=True)
class Image:
    """``state``: the version of state that it writes; it reads older ones. ``live``: applies settings at run time."""

    name: str
    fault: str = "good"
    state: int = 0
    live: bool = False


@dataclass
class ControlChange:
    """A change of settings that a driver applies or rejects after some ticks. ``id``: of its request."""

    id: str
    level: object
    ticks: int


@dataclass
class Driver:
    """A process. ``level``: the setting that it runs with; ``change``: the one that it is about to apply.

    ``outage_probability``: of a store that does not answer a ``promote``; ``had_outage``: it did not answer this one.
    """

    uid: str
    image: Image
    store: Store
    rng: random.Random
    phase: str = "starting"
    epoch: int = 0
    committed: int = 0
    batch: int = -1
    results: dict[str, dict[str, object]] = field(default_factory=dict)
    working: int = 0
    request: dict[str, object] = field(default_factory=dict)
    ended: bool = False
    code: int = 0
    draining: str | None = None
    plan: str = ""
    last_request: str = ""
    level: object = None
    change: ControlChange | None = None
    begun: set[str] = field(default_factory=set)
    had_outage: bool = False
    outage_probability: float = 0.0

    def receive_request(self, text: str) -> None:
        """Take the request of its annotation."""
        if text != self.last_request:
            self.last_request, self.request = text, json.loads(text)

    def tick(self, now_ms: int) -> None:
        """Do some work, unless the process ended or hangs."""
        if self.ended or (self.image.fault == "slow" and self.rng.random() < 0.6):
            return
        if self.phase == "starting":
            self._start()
        elif self.phase == "running":
            self._run()
        self._apply_change()
        self._handle_request(now_ms)

    def _start(self) -> None:
        if self.image.fault == "crashes-at-start":
            self._end(1)
        elif self.image.fault != "hangs-at-start" and self.rng.random() < 0.5:
            self.phase = "standby"
            verdicts = {"incompatible": "incompatible", "needs-decision": "decision"}
            self.plan = verdicts.get(self.image.fault, "compatible")

    def _run(self) -> None:
        fault = self.image.fault
        if fault == "crashes-soon" and self.committed >= 1 and self.rng.random() < 0.5:
            return self._end(1)
        if fault in ("stalls-soon", "stalls-and-hangs") and self.committed >= 2:
            return None
        if not self.store.commit(self.uid, self.epoch):
            return self._end(3)  # fenced
        self.committed += 1
        self.batch = self.store.checkpoints[self.epoch].batch - 1
        return None

    def _handle_request(self, now_ms: int) -> None:
        name = str(self.request.get("id", ""))
        if self.ended or not name or name in self.results or self.phase == "starting":
            return
        self.working += 1
        if self.working < self.rng.randint(1, 3):
            return
        self.working = 0
        handlers = {"promote": self._promote, "drain": self._drain, "savepoint": self._save, "verify": self._verify}
        answer = handlers.get(str(self.request["command"]), self._configure)()
        if answer is not None:
            self._add_result(name, answer)

    def _add_result(self, name: str, answer: dict[str, object]) -> None:
        self.results[name] = answer
        for old in list(self.results)[:-3]:
            del self.results[old]

    def _promote(self) -> dict[str, object] | None:
        if self.phase != "standby":
            return {"ok": False, "message": "no standby"}
        if self.image.fault == "hangs-at-promote":
            return None
        request = self.request
        if self.rng.random() < self.outage_probability:
            self.had_outage = True
            return {"ok": False, "message": "Retryable: the store is away", "retryable": True}
        try:
            self.store.promote(
                self.uid,
                self.image.state,
                int(str(request["epoch"])),
                str(request["restore"] or ""),
                bool(request["allow_empty"]),
                bool(request["discard_newer"]),
            )
        except Rejection as rejection:
            newer = rejection.newer and {"epoch": rejection.newer[0], "batch": rejection.newer[1]}
            return {"ok": False, "message": rejection.message, "newer_epoch": newer}
        self.epoch, self.phase = int(str(request["epoch"])), "running"
        if self.image.fault == "crashes-at-promote":
            self._end(1)
        return {"ok": True}

    def _drain(self) -> dict[str, object] | None:
        if self.phase == "standby":
            self._end(0)
            return {"ok": True}
        if self.image.fault in ("stalls-and-hangs", "rejects-the-drain", "hangs-at-drain"):
            return {"ok": False, "message": "no"} if self.image.fault == "rejects-the-drain" else None
        answer: dict[str, object] = self._save() if self.request.get("savepoint") else {"ok": True}
        if answer["ok"]:
            self._end(0)
        return answer

    def _save(self) -> dict[str, object]:
        name = str(self.request.get("savepoint") or self.request.get("name"))
        if self.phase != "running" or self.store.owner != self.uid or not self.store.checkpoints[self.epoch].commits:
            return {"ok": False, "message": "nothing to save"}
        saved = self.store.save(name, self.epoch)
        return {"ok": True, "savepoint": _savepoint_json(name, saved)}

    def _verify(self) -> dict[str, object]:
        saved = self.store.savepoints.get(str(self.request["savepoint"]))
        good = saved is not None and self.image.fault != "does-not-verify" and saved.state <= self.image.state
        return {"ok": good, "message": "" if good else "does not read back"}

    def _configure(self) -> dict[str, object] | None:
        """Begin a change of settings; one at a time."""
        name, settings = str(self.request["id"]), self.request["settings"]
        assert isinstance(settings, dict)
        if name in self.begun:
            return None
        if self.change is None:
            self.begun.add(name)
            self.change = ControlChange(name, settings["level"], self.rng.choice(_CHANGE_TICKS))
            return None
        return {"ok": False, "message": "another change is under way"}

    def _apply_change(self) -> None:
        """Apply or reject the change when its time has come, even if the operator no longer waits."""
        change = self.change
        if change is None or self.ended or self.phase != "running":
            return
        change.ticks -= 1
        if change.ticks > 0:
            return
        if self.image.live:
            self.level = change.level
        self.change = None
        self._add_result(change.id, {"ok": self.image.live, "message": ""})

    def term(self) -> None:
        """Handle SIGTERM: drain without a savepoint, unless the process hangs."""
        if self.image.fault != "stalls-and-hangs":
            self._end(0)

    def _end(self, code: int) -> None:
        self.ended, self.code = True, code
        if self.store.owner == self.uid:
            self.store.owner = ""

    def kill(self) -> None:
        """End the process as SIGKILL or a dead node does: the lease stays until another process takes it."""
        self.ended, self.code = True, 137

    def _load(self) -> tuple[int, int]:
        """Return lag and busy share. After a start the load of an image is high or low, then neither."""
        if self.committed > 12:
            return 1, 60
        return (30, 95) if hash_of(self.image.name) % 2 else (1, 10)

    def report(self, now_ms: int) -> str:
        """Return the status that the driver publishes now."""
        lag_rows = 5_000 * self.committed if self.image.fault == "lags" else 10
        lag_s, busy_percent = self._load()
        return json.dumps(
            {
                "phase": "drained" if self.ended and self.code == 0 else self.phase,
                "epoch": self.epoch,
                "batch": self.batch,
                "committed": self.committed,
                "lag_rows": lag_rows,
                "lag_s": lag_s,
                "busy_percent": busy_percent,
                "at_ms": now_ms,
                "compatibility": {"verdict": self.plan, "reasons": []} if self.plan else None,
                "results": self.results,
            }
        )


def _savepoint_json(name: str, saved: SavepointState) -> dict[str, object]:
    return {"name": name, "batch": saved.batch, "epoch": saved.epoch, "digest": "d", "size_bytes": 1}
