"""What an answer of a broker to a question for offsets counts as."""

from __future__ import annotations

from concurrent.futures import Future

import confluent_kafka as ck
import pytest
from confluent_kafka import admin

from streamcore.errors import Retryable
from streamcore.kafka.partition_offsets import _valid_offset

PARTITION = ck.TopicPartition("orders", 1)


def answer(offset: int) -> Future[admin.ListOffsetsResultInfo]:
    done: Future[admin.ListOffsetsResultInfo] = Future()
    done.set_result(admin.ListOffsetsResultInfo(offset, -1, -1))
    return done


@pytest.mark.parametrize("offset", [-1, 0, 7])
def test_a_valid_offset_is_returned_unchanged(offset: int) -> None:
    assert _known_offset(PLACE, answer(offset)) == offset


def test_a_response_without_an_offset_is_retryable() -> None:
    """A broker that had just come back gave such an answer: the app ended, for it took it for a lost topic."""
    with pytest.raises(Retryable, match="topic orders, partition 1"):
        _valid_offset(PARTITION, answer(ck.OFFSET_INVALID))
