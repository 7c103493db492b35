"""The division of the keys of an app among its shards. It must never change between versions, as the hash of a key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command reads checkpoints without NumPy
    import numpy as np
    import numpy.typing as npt

#: The number of key groups of an app that sets none; Flink's default.
DEFAULT_KEY_GROUPS = 128
MAX_KEY_GROUPS = 32_768


@dataclass(frozen=True, slots=True)
class KeySpace:
    """How the keys of an app are divided: into ``key_groups`` key groups by their hash, of which each of ``shards``
    shards owns a range. So another number of shards moves whole key groups (Flink: key group, max parallelism).
    """

    shards: int = 1
    key_groups: int = DEFAULT_KEY_GROUPS

    def group_for(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the key group of each hash: its upper half modulo the number of key groups."""
        return ((hashes >> 32) % self.key_groups).astype("int64")

    def shard_for(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Return the shard that owns each hash."""
        return (self.group_for(hashes) * self.shards // self.key_groups).astype("int32")

    def with_at_most(self, shards: int) -> KeySpace:
        """Return the key space of the first ``shards`` shards, if there are more."""
        return replace(self, shards=min(shards, self.shards))

    def get_groups(self, shard: int) -> range:
        """Return the key groups that a shard owns."""
        first, end = (-(-number * self.key_groups // self.shards) for number in (shard, shard + 1))
        return range(first, end)
