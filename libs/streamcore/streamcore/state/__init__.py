"""The state of a shard: tables in memory, stored as a log of changed rows and buckets of all rows."""

from streamcore.limits import StateSettings
from streamcore.state.blob_store import BlobStore, MemoryBlobs
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.state_log import StateLog
from streamcore.state.table import HASH, StateTable

__all__ = ["HASH", "BlobStore", "KeyValueTable", "MemoryBlobs", "StateLog", "StateSettings", "StateTable"]
