"""The ledger of an app's OpenSearch sink: one document with the owning epoch, the last written cut and its indexes.

It fences owners of earlier epochs, and shows a rebuild which indexes a cut was written to. It does not prevent that a
replayed cut is sent again; the versions of its documents make that harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced
from streamcore.sinks.opensearch.bulk_lines import document_version
from streamcore.sinks.opensearch.client import RequestRejected, SearchClient
from streamcore.sinks.opensearch.settings import Json
from streamcore.sinks.sink import check_same_cut

INDEX = "headgate-ledger"
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class IndexLedgerEntry:
    """The contents of a ledger. ``cut``: the last completely written one, None before the first of an epoch.
    ``indexes``: the indexes that it was written to."""

    epoch: int
    cut: CutId | None
    indexes: tuple[str, ...]

    @property
    def version(self) -> int:
        """The external version of the ledger's document. The claim of an epoch has a lower one than its first batch."""
        return document_version(self.epoch, 0) if self.cut is None else document_version(self.epoch, self.cut.batch) + 1


class IndexLedger:
    """The ledger of one app and sink."""

    def __init__(self, client: SearchClient, app: str, sink: str) -> None:
        self._client = client
        self._path = f"/{INDEX}/_doc/{app}.{sink}"

    def read(self) -> IndexLedgerEntry | None:
        """Return the current entry, also if a search does not find it yet; None without a ledger."""
        document = self._client.find(self._path)
        if document is None or not document.get("found", True):
            return None
        source = document["_source"]
        cut = None if source["batch"] is None else CutId(source["batch"], source["digest"])
        return IndexLedgerEntry(source["epoch"], cut, tuple(source["indexes"]))

    def claim(self, owner: WriterId) -> CutId | None:
        """Claim the ledger for the owner's epoch; return the last cut that this epoch has written, or None.

        Raises ``Fenced`` if a later epoch has claimed it. A second claim of one epoch changes nothing.
        """
        self._ensure_index()
        self.write(IndexLedgerEntry(owner.epoch, None, ()))
        entry = self.read()
        return entry.cut if entry is not None and entry.epoch == owner.epoch else None

    def write(self, entry: IndexLedgerEntry) -> None:
        """Write an entry, unless the ledger has a later one. Raise ``Fenced`` if that is of a later epoch."""
        batch, digest = (None, None) if entry.cut is None else (entry.cut.batch, entry.cut.digest)
        document: Json = {"epoch": entry.epoch, "batch": batch, "digest": digest, "indexes": list(entry.indexes)}
        params = {"version": str(entry.version), "version_type": "external_gte"}
        try:
            self._client.request("PUT", self._path, document, params)
        except RequestRejected as rejection:
            if rejection.status != _CONFLICT:
                raise
            self.check(entry.epoch)

    def check(self, epoch: int, cut: CutId | None = None) -> None:
        """Raise ``Fenced`` if a later epoch than ``epoch`` has claimed the ledger, or if it shows that another process
        of the epoch writes (``check_same_cut``). ``cut``: the one that is to be written, if any."""
        entry = self.read()
        if entry is not None and entry.epoch > epoch:
            raise Fenced(f"opensearch ledger {self._path}: epoch {entry.epoch} has begun, this is {epoch}")
        if entry is not None and entry.epoch == epoch and entry.cut is not None and cut is not None:
            check_same_cut(cut, entry.cut, f"opensearch ledger {self._path}")

    def _ensure_index(self) -> None:
        if self._client.find(f"/{INDEX}/_settings", {"filter_path": "*.settings.index.uuid"}) is not None:
            return
        body: Json = {
            "settings": {"number_of_shards": 1, "auto_expand_replicas": "0-1"},
            "mappings": {"dynamic": False, "properties": {}},
        }
        try:
            self._client.request("PUT", f"/{INDEX}", body)
        except RequestRejected as rejection:
            if rejection.code != "resource_already_exists_exception":
                raise
