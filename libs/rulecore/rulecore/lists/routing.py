"""Splits the control records of a cut into those of lists and others, in the order in which the kernel applies them.

Lists and their parts are first, so that one cut may bring a rule and the list that it uses. Deletions of lists are
last, so that one cut may bring a rule that no longer uses a list and the list's deletion. The records of one list keep
their order: a list that is deleted and published again in one cut exists afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY
from streamcore.kernel import ControlRecord

#: The prefixes of the keys of lists: of ``App.data_keys``, for no rule reads another field when a list changes.
DATA_KEYS: Final = (LIST_KEY.encode(), LIST_PART_KEY.encode())


def is_list(record: ControlRecord) -> bool:
    """Return whether the record is about a list. No rule's id has a slash."""
    return record.key is not None and record.key.startswith(DATA_KEYS)


def split_records(
    records: Sequence[ControlRecord],
) -> tuple[list[ControlRecord], list[ControlRecord], list[ControlRecord]]:
    """Split records into list updates, records of other subjects and list deletions, each in the cut's order."""
    about_lists = [record for record in records if is_list(record)]
    last = {record.key: number for number, record in enumerate(about_lists)}
    is_deletion = [record.value is None and last[record.key] == number for number, record in enumerate(about_lists)]
    updates = [record for record, deletes in zip(about_lists, is_deletion, strict=True) if not deletes]
    deletions = [record for record, deletes in zip(about_lists, is_deletion, strict=True) if deletes]
    return updates, [record for record in records if not is_list(record)], deletions
