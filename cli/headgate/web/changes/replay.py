"""Sends a repaired dead letter to its source again, as ``headgate deadletters replay`` does: exactly once."""

from __future__ import annotations

from headgate.dead_letters.model import DeadLetter, Repair
from headgate.dead_letters.resend import check_targets, plan, replay
from headgate.errors import InputError
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.state.dead_letters import DeadLetterReader, show_bytes
from headgate.web.state.values import ReplayValue
from streamcore.kafka.settings import KafkaSettings


def send_again(kafka: KafkaSettings, letters: DeadLetterReader, at: tuple[int, int], value: str | None) -> ReplayValue:
    """Send the dead letter at ``at`` (partition, offset) with this value. None, or the value as it is shown: its
    original bytes. ``ProblemError`` if it cannot be sent again."""
    letter = letters.letter(*at)
    records = plan([letter], Repair(_edits(letter, value), {}), letters.topic)
    if not records:
        raise _refused("its source is not known, or it is a control record: it cannot be sent again")
    (record,) = records
    try:
        check_targets(kafka, records)
    except InputError as error:
        raise _refused(str(error)) from None
    sent = replay(kafka, letters.topic, records) > 0
    return ReplayValue(
        at=letter.position,
        sent=sent,
        target=f"{record.topic}:{record.partition}",
        repaired=record.value != letter.value,
    )


def _edits(letter: DeadLetter, value: str | None) -> dict[str, bytes | None]:
    same = value is None or value == show_bytes(letter.value)
    return {} if same or value is None else {letter.position: value.encode()}


def _refused(detail: str) -> ProblemError:
    return ProblemError(422, ProblemCode.CANNOT_ANSWER, detail)
