"""Which control records of a cut are about lists, and in which order they count.

Lists and their parts come first, so that a rule may come in the same cut as the list that it asks; then everything
else; deletions of lists last, so that a rule may stop asking a list in the same cut. Of one list the records keep their
order: one that is deleted and comes again in the same cut is there afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rulecore.control_keys import LIST_KEY, LIST_PART_KEY
from streamcore.kernel import Control

_PREFIXES: Final = (LIST_KEY.encode(), LIST_PART_KEY.encode())


def is_list(record: Control) -> bool:
    """Whether the record is about a list. No rule's id has a slash."""
    return record.key is not None and record.key.startswith(_PREFIXES)


def split(records: Sequence[Control]) -> tuple[list[Control], list[Control], list[Control]]:
    """Lists and parts that come, records of others, lists and parts that go; each in the order of the cut."""
    about_lists = [record for record in records if is_list(record)]
    last = {record.key: number for number, record in enumerate(about_lists)}
    goes = [record.value is None and last[record.key] == number for number, record in enumerate(about_lists)]
    coming = [record for record, going in zip(about_lists, goes, strict=True) if not going]
    deleted = [record for record, going in zip(about_lists, goes, strict=True) if going]
    return coming, [record for record in records if not is_list(record)], deleted
