"""The root of an app's checkpoints: lease, epochs, what was committed. The outputs of every commit are counted here."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Outputs are not taken back when a person accepts to leave them behind: tests see that this is never done lightly.
FORGIVING = False


@dataclass
class Made:
    """A checkpoint: the next batch, the next position of the input, and the version of its state."""

    batch: int
    position: int
    state: int
    commits: int = 0


@dataclass(frozen=True)
class Saved:
    """A savepoint."""

    epoch: int
    batch: int
    position: int
    state: int


@dataclass
class Rejection(Exception):
    """A ``promote`` that may not be."""

    words: str
    newer: tuple[int, int] | None = None


@dataclass
class Store:
    """``outputs``: each position's number of commits, since the last restore by which a person left some behind."""

    checkpoints: dict[int, Made] = field(default_factory=dict)
    savepoints: dict[str, Saved] = field(default_factory=dict)
    owner: str = ""
    epoch: int = 0
    outputs: list[int] = field(default_factory=list)

    def newest(self) -> tuple[int, int] | None:
        """(epoch, batch) of the last commit."""
        made = [(epoch, made.batch - 1) for epoch, made in self.checkpoints.items() if made.commits]
        return max(made, default=None)

    def promote(self, me: str, state: int, epoch: int, restore: str, allow_empty: bool, discard_newer: bool) -> Made:
        """Take the lease under ``epoch``. Rejecting leaves everything as it was."""
        newest = self.newest()
        if epoch < self.epoch:
            raise Rejection(f"the root has seen epoch {self.epoch}", newest)
        made = self.checkpoints.get(epoch)
        if made is None:
            made = self._restore(restore, discard_newer, newest) if restore else self._begin(allow_empty, newest)
        if made.state > state:
            raise Rejection("state of a newer version")
        self.owner, self.epoch = me, epoch
        self.checkpoints[epoch] = made
        made.state = state
        return made

    def _restore(self, restore: str, discard_newer: bool, newest: tuple[int, int] | None) -> Made:
        saved = self.savepoints.get(restore)
        if saved is None:
            raise Rejection(f"no savepoint {restore}")
        if newest is not None and newest > (saved.epoch, saved.batch) and not discard_newer:
            raise Rejection("there is something newer", newest)
        if discard_newer and not FORGIVING:
            self.outputs = [1] * saved.position  # a person chose this line of history
        return Made(0, saved.position, saved.state)

    def _begin(self, allow_empty: bool, newest: tuple[int, int] | None) -> Made:
        if not allow_empty or newest is not None:
            raise Rejection("no checkpoint to go on from", newest)
        return Made(0, 0, 0)

    def commit(self, me: str, epoch: int) -> bool:
        """One batch. False for one who lost the lease: he has written nothing."""
        if self.owner != me:
            return False
        made = self.checkpoints[epoch]
        while len(self.outputs) <= made.position:
            self.outputs.append(0)
        self.outputs[made.position] += 1
        made.batch, made.position, made.commits = made.batch + 1, made.position + 1, made.commits + 1
        return True

    def save(self, name: str, epoch: int) -> Saved:
        """Write a savepoint; the same one again changes nothing."""
        made = self.checkpoints[epoch]
        return self.savepoints.setdefault(name, Saved(epoch, made.batch - 1, made.position, made.state))
