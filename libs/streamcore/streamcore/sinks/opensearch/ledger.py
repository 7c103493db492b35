"""Who writes and how far: one small document for each app and sink, in an index of its own.

It fences owners of earlier epochs, and shows a rebuild which indexes a cut went to. It does not decide which documents
are written: a cut that comes again is sent again, and the versions of its documents make that harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.errors import Fenced
from streamcore.sinks.opensearch.bulk_lines import document_version
from streamcore.sinks.opensearch.client import RequestRejected, SearchClient
from streamcore.sinks.opensearch.settings import Json
from streamcore.writer_id import WriterId

INDEX = "headgate-ledger"
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class IndexLedgerEntry:
    """``batch``: the last one that was written whole, None before the first of an epoch; ``indexes``: where it went."""

    epoch: int
    batch: int | None
    indexes: tuple[str, ...]

    @property
    def version(self) -> int:
        """Of the ledger's document: a claim comes before the first batch."""
        return document_version(self.epoch, 0) if self.batch is None else document_version(self.epoch, self.batch) + 1


class IndexLedger:
    """Of one app and sink."""

    def __init__(self, client: SearchClient, app: str, sink: str) -> None:
        self._client = client
        self._path = f"/{INDEX}/_doc/{app}.{sink}"

    def read(self) -> IndexLedgerEntry | None:
        """Return its present contents, not those that a search would find."""
        found = self._client.find(self._path)
        if found is None or not found.get("found", True):
            return None
        source = found["_source"]
        return IndexLedgerEntry(source["epoch"], source["batch"], tuple(source["indexes"]))

    def claim(self, owner: WriterId) -> int | None:
        """Begin an epoch; ``Fenced`` when a later one has begun. In an epoch that is under way nothing changes, and its
        last batch is returned."""
        self._ensure_index()
        self.write(IndexLedgerEntry(owner.epoch, None, ()))
        found = self.read()
        return found.batch if found is not None and found.epoch == owner.epoch else None

    def write(self, entry: IndexLedgerEntry) -> None:
        """Note a cut; ``Fenced`` when a later epoch has begun. A note of a later cut of this epoch stays."""
        document: Json = {"epoch": entry.epoch, "batch": entry.batch, "indexes": list(entry.indexes)}
        params = {"version": str(entry.version), "version_type": "external_gte"}
        try:
            self._client.request("PUT", self._path, document, params)
        except RequestRejected as refusal:
            if refusal.status != _CONFLICT:
                raise
            self.check(entry.epoch)

    def check(self, epoch: int) -> None:
        """``Fenced`` when a later epoch has begun."""
        found = self.read()
        if found is not None and found.epoch > epoch:
            raise Fenced(f"opensearch ledger {self._path}: epoch {found.epoch} has begun, this is {epoch}")

    def _ensure_index(self) -> None:
        if self._client.find(f"/{INDEX}/_settings", {"filter_path": "*.settings.index.uuid"}) is not None:
            return
        body: Json = {
            "settings": {"number_of_shards": 1, "auto_expand_replicas": "0-1"},
            "mappings": {"dynamic": False, "properties": {}},
        }
        try:
            self._client.request("PUT", f"/{INDEX}", body)
        except RequestRejected as refusal:
            if refusal.code != "resource_already_exists_exception":
                raise
