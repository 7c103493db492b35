"""The documents that were published while an app ran, in its checkpoint: the files ``streams/<batch>``.

A file has all published documents of the app, of streams and its own, from this batch on, up to the batch of the next
file. It is written before the output of the batch that accepted the documents, so that a crash leaves either no file,
or that batch to run again, which accepts them again. The offset log has a digest of the documents with each batch, so
that a lost file is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamcore.errors import CorruptState
from streamcore.schema.published_document import PublishedDocument, digest_documents
from streamcore.storage.atomic_files import discard, list_numbers, make_folder, read_document, write_json
from streamcore.storage.checked_json import RESTORE
from streamcore.storage.location import Location


@dataclass(frozen=True, slots=True)
class StreamLog:
    """The files. ``keep``: of how many batches."""

    folder: Location
    keep: int = 100

    def in_force(self, batch: int) -> tuple[PublishedDocument, ...]:
        """Return the published streams of the batch. Raise ``CorruptState`` if a file was changed."""
        known = [first for first in list_numbers(self.folder) if first <= batch]
        if not known:
            return ()
        path = self.folder / str(known[-1])
        document = read_document(path)
        if document is None or document.get("batch") != known[-1]:
            raise CorruptState(f"{path}: is of another batch; {RESTORE}")
        return tuple(PublishedDocument(topic, text) for topic, text in document["streams"])

    def write(self, batch: int, streams: Iterable[PublishedDocument]) -> None:
        """Write the published streams of the batch and of those after it. A batch that runs again writes them again."""
        make_folder(self.folder)
        rows = [[one.topic, one.document] for one in streams]
        write_json(self.folder / str(batch), {"batch": batch, "streams": rows})
        old = [first for first in list_numbers(self.folder) if first <= batch - self.keep]
        for first in old[:-1]:
            discard(self.folder / str(first))

    def check(self, batch: int, digest: str) -> None:
        """Raise ``CorruptState`` if the streams of a batch are not those with which it was planned."""
        if (found := digest_documents(self.in_force(batch))) != digest:
            raise CorruptState(
                f"{self.folder}: batch {batch} was planned with the published streams {digest or 'none'}, and here are "
                f"{found or 'none'}: a file is lost, or of another checkpoint; {RESTORE}"
            )
