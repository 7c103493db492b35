"""Which control records of a cut are about lists, and in which order they count.

Lists and their parts come first, so that a rule may come in the same cut as the list that it asks; then everything
else; deletions of lists last, so that a rule may stop asking a list in the same cut. Of one list the records keep their
order: one that is deleted and comes again in the same cut is there afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY
from streamcore.kernel import ControlRecord

_PREFIXES: Final = (LIST_KEY.encode(), LIST_PART_KEY.encode())


def is_list(record: ControlRecord) -> bool:
    """Return whether the record is about a list. No rule's id has a slash."""
    return record.key is not None and record.key.startswith(_PREFIXES)


def split_records(
    records: Sequence[ControlRecord],
) -> tuple[list[ControlRecord], list[ControlRecord], list[ControlRecord]]:
    """Split records into list updates, records of other subjects and list deletions, each in the cut's order."""
    about_lists = [record for record in records if is_list(record)]
    last = {record.key: number for number, record in enumerate(about_lists)}
    goes = [record.value is None and last[record.key] == number for number, record in enumerate(about_lists)]
    coming = [record for record, going in zip(about_lists, goes, strict=True) if not going]
    deleted = [record for record, going in zip(about_lists, goes, strict=True) if going]
    return coming, [record for record in records if not is_list(record)], deleted
