"""The savepoint that a checkpoint was restored from, kept in the checkpoint for as long as it lives."""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.storage.atomic_files import read_int, read_json, write_json
from streamcore.storage.location import Location


@dataclass(frozen=True, slots=True)
class RestoreOrigin:
    """The savepoint that a checkpoint was restored from. ``epoch`` and ``batch`` are the savepoint's. ``rewinds``: the
    app may write output again that was written after the savepoint."""

    savepoint: str
    digest: str
    epoch: int
    batch: int
    rewinds: bool = False

    def write(self, path: Location) -> None:
        """Write it to the file ``path``."""
        entries = {"savepoint": self.savepoint, "digest": self.digest, "epoch": self.epoch, "batch": self.batch}
        write_json(path, {**entries, "rewinds": int(self.rewinds)})

    @classmethod
    def read(cls, path: Location) -> RestoreOrigin | None:
        """Read the file ``path``; return None if the checkpoint was not restored from a savepoint."""
        entries = read_json(path)
        if entries is None:
            return None
        epoch, batch, rewinds = (read_int(path, entries, name) for name in ("epoch", "batch", "rewinds"))
        return cls(str(entries.get("savepoint")), str(entries.get("digest")), epoch, batch, bool(rewinds))
