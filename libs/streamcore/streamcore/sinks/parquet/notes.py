"""The log of a folder: numbered notes that say which files count. No note is ever changed or removed.

A note is a JSON document in ``_headgate/`` with a digest of itself. It is created only if no note of its number exists
(a disk: by a hard link; a bucket: by a conditional PUT), so of two writers that read the same last note one fails. A
note without files is the fence of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from streamcore.cuts.cut_id import CutId
from streamcore.errors import CorruptState
from streamcore.storage.atomic_files import create_json, list_names, make_folder, parse_numbers, read_document
from streamcore.storage.location import Location

#: The folder of the notes. Readers of Parquet files pass over names that begin with ``_``.
NOTES: Final = "_headgate"
_SUFFIX: Final = ".json"
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class FolderNote:
    """A note.

    ``app``, ``sink``, ``lane``: who writes here. ``batch``, ``digest``: the last cut of this epoch; None before the
    first. ``files``: paths of the cut's files in the folder. ``columns``: the Arrow type of every column that the files
    so far may have, by name.
    """

    app: str
    sink: str
    lane: str
    epoch: int
    batch: int | None
    digest: str | None
    rows: int
    files: Sequence[str]
    partition_by: Sequence[str]
    columns: Mapping[str, str]

    @property
    def last(self) -> CutId | None:
        """The last cut of the note's epoch."""
        return None if self.batch is None or self.digest is None else CutId(self.batch, self.digest)


class FolderLog:
    """The notes of a folder, for one writer."""

    def __init__(self, folder: Location) -> None:
        self._notes = folder / NOTES

    def read_last(self) -> tuple[int, FolderNote | None]:
        """Return the number of the last note, and the note; -1 and None in a folder without notes."""
        names = [name.removesuffix(_SUFFIX) for name in list_names(self._notes) if name.endswith(_SUFFIX)]
        numbers = parse_numbers(names)
        if not numbers:
            return -1, None
        path = self._path(numbers[-1])
        document = read_document(path)
        try:
            return numbers[-1], FolderNote(**document or {})
        except TypeError as error:
            raise CorruptState(f"{path}: no note of a Parquet sink: {error}; write to another folder") from error

    def create(self, number: int, note: FolderNote) -> bool:
        """Create the note of this number; return False if there is another one of that number."""
        make_folder(self._notes)
        return create_json(self._path(number), asdict(note))

    def _path(self, number: int) -> Location:
        return self._notes / f"{number:0{_DIGITS}}{_SUFFIX}"
