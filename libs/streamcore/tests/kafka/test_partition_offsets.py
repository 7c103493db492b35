"""How responses of a broker to a request for offsets are interpreted."""

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
    assert _valid_offset(PARTITION, answer(offset)) == offset


def test_a_response_without_an_offset_is_retryable() -> None:
    """A broker gives such a response just after its restart; an app once took it for a lost topic and ended."""
    with pytest.raises(Retryable, match="topic orders, partition 1"):
        _valid_offset(PARTITION, answer(ck.OFFSET_INVALID))
