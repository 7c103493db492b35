"""Answers to control records about lists, in the form of all answers."""

from __future__ import annotations

from rulecore.lists.records import LIST_PREFIX, PART_PREFIX
from rulecore.lists.store import ListAnswer
from rulecore.status import Status, StatusKind, Subject
from streamcore.kernel import Control


def of_list(answer: ListAnswer, record: Control, epoch: int) -> Status:
    """The status of a record under ``list/`` or ``part/``."""
    name = answer.key.removeprefix(LIST_PREFIX).removeprefix(PART_PREFIX)
    subject = Subject.LIST if answer.key.startswith(LIST_PREFIX) else Subject.PART
    kind = StatusKind(answer.status.value)
    return Status(name, answer.version, kind, answer.reason, epoch, record.partition, record.offset, subject)
