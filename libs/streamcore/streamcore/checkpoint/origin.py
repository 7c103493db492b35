"""What a checkpoint was made from, when it was made from a savepoint: kept beside it for as long as it lives."""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.checkpoint.files import read_int, read_json, write_json
from streamcore.location import Location


@dataclass(frozen=True, slots=True)
class Origin:
    """The savepoint's name, digest, epoch and batch. ``rewinds``: somebody wants what was written after it again."""

    savepoint: str
    digest: str
    epoch: int
    batch: int
    rewinds: bool = False

    def write(self, path: Location) -> None:
        """Keep it."""
        entries = {"savepoint": self.savepoint, "digest": self.digest, "epoch": self.epoch, "batch": self.batch}
        write_json(path, {**entries, "rewinds": int(self.rewinds)})

    @classmethod
    def read(cls, path: Location) -> Origin | None:
        """None where the checkpoint began with nothing."""
        entries = read_json(path)
        if entries is None:
            return None
        epoch, batch, rewinds = (read_int(path, entries, name) for name in ("epoch", "batch", "rewinds"))
        return cls(str(entries.get("savepoint")), str(entries.get("digest")), epoch, batch, bool(rewinds))
