"""A shard's state: tables in memory, made durable as a log of changes over buckets of full rows."""

from streamcore.limits import StateSettings
from streamcore.state.blob_store import BlobStore, MemoryBlobs
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.state_log import StateLog
from streamcore.state.table import HASH, StateTable

__all__ = ["HASH", "BlobStore", "KeyValueTable", "MemoryBlobs", "StateLog", "StateSettings", "StateTable"]
