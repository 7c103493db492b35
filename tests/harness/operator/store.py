"""A model of the checkpoint root of an app: lease, epochs and commits. It counts the outputs of every commit."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Whether a restore that discards newer batches keeps their outputs, so that a needless one is seen as a repetition.
KEEP_DISCARDED_OUTPUTS = False


@dataclass
class CheckpointState:
    """A checkpoint: the next batch, the next position of the input, and the version of its state."""

    batch: int
    position: int
    state: int
    commits: int = 0


@dataclass(frozen=True)
class SavepointState:
    """A savepoint."""

    epoch: int
    batch: int
    position: int
    state: int


@dataclass
class Rejection(Exception):
    """The reason why a ``promote`` is rejected."""

    message: str
    newer: tuple[int, int] | None = None


@dataclass
class Store:
    """``outputs``: the number of commits of each position, since the last restore that discarded newer batches."""

    checkpoints: dict[int, CheckpointState] = field(default_factory=dict)
    savepoints: dict[str, SavepointState] = field(default_factory=dict)
    owner: str = ""
    epoch: int = 0
    outputs: list[int] = field(default_factory=list)

    def newest(self) -> tuple[int, int] | None:
        """Return (epoch, batch) of the last commit."""
        checkpoint = [
            (epoch, checkpoint.batch - 1) for epoch, checkpoint in self.checkpoints.items() if checkpoint.commits
        ]
        return max(checkpoint, default=None)

    def promote(
        self, uid: str, state: int, epoch: int, restore: str, allow_empty: bool, discard_newer: bool
    ) -> CheckpointState:
        """Take the lease under ``epoch``. A rejection changes nothing."""
        newest = self.newest()
        if epoch < self.epoch:
            raise Rejection(f"the root has seen epoch {self.epoch}", newest)
        checkpoint = self.checkpoints.get(epoch)
        if checkpoint is None:
            checkpoint = self._restore(restore, discard_newer, newest) if restore else self._begin(allow_empty, newest)
        if checkpoint.state > state:
            raise Rejection("state of a newer version")
        self.owner, self.epoch = uid, epoch
        self.checkpoints[epoch] = checkpoint
        checkpoint.state = state
        return checkpoint

    def _restore(self, restore: str, discard_newer: bool, newest: tuple[int, int] | None) -> CheckpointState:
        savepoint = self.savepoints.get(restore)
        if savepoint is None:
            raise Rejection(f"no savepoint {restore}")
        if newest is not None and newest > (savepoint.epoch, savepoint.batch) and not discard_newer:
            raise Rejection("there is something newer", newest)
        if discard_newer and not KEEP_DISCARDED_OUTPUTS:
            self.outputs = [1] * savepoint.position  # a person chose to discard the others
        return CheckpointState(0, savepoint.position, savepoint.state)

    def _begin(self, allow_empty: bool, newest: tuple[int, int] | None) -> CheckpointState:
        if not allow_empty or newest is not None:
            raise Rejection("no checkpoint to go on from", newest)
        return CheckpointState(0, 0, 0)

    def commit(self, uid: str, epoch: int) -> bool:
        """Commit one batch; return False, and write nothing, if the process lost the lease."""
        if self.owner != uid:
            return False
        checkpoint = self.checkpoints[epoch]
        while len(self.outputs) <= checkpoint.position:
            self.outputs.append(0)
        self.outputs[checkpoint.position] += 1
        checkpoint.batch, checkpoint.position, checkpoint.commits = (
            checkpoint.batch + 1,
            checkpoint.position + 1,
            checkpoint.commits + 1,
        )
        return True

    def save(self, name: str, epoch: int) -> SavepointState:
        """Write a savepoint; the same one again changes nothing."""
        checkpoint = self.checkpoints[epoch]
        return self.savepoints.setdefault(
            name, SavepointState(epoch, checkpoint.batch - 1, checkpoint.position, checkpoint.state)
        )
