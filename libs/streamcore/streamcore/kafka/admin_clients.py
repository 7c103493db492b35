"""Builds kafka-python clients for administration, and turns their exceptions into errors of ``streamcore.errors``.

``data_clients`` does this for confluent-kafka. Workers do not import this module. Importing kafka-python takes a
quarter of a second, so each function imports it when it is called.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamcore.errors import ConfigError, Fenced, Permanent, Retryable, StreamError
from streamcore.kafka.data_clients import KNOWN, Isolation
from streamcore.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    import kafka


logging.getLogger("kafka").setLevel(logging.CRITICAL)  # each failure is raised with its message


def _known_errors() -> tuple[tuple[tuple[type[Exception], ...], type[StreamError], str], ...]:
    from kafka import errors as kp

    return (
        ((kp.ProducerFencedError,), Fenced, KNOWN[0][2]),
        ((kp.SaslAuthenticationFailedError, kp.UnsupportedSaslMechanismError), ConfigError, KNOWN[1][2]),
        ((kp.AuthorizationError,), ConfigError, KNOWN[2][2]),
        ((kp.UnknownTopicOrPartitionError, kp.InvalidTopicError), ConfigError, KNOWN[3][2]),
        ((kp.MessageSizeTooLargeError, kp.RecordListTooLargeError), Permanent, KNOWN[4][2]),
        ((kp.KafkaConfigurationError, kp.InvalidReplicationFactorError), ConfigError, KNOWN[6][2]),
        ((kp.PolicyViolationError, kp.UnsupportedVersionError, kp.IllegalArgumentError), Permanent, KNOWN[7][2]),
    )


def python_error(error: Exception, action: str, settings: KafkaSettings) -> StreamError:
    """Return the error of ``streamcore.errors`` for an exception of kafka-python. ``action`` names the attempt."""
    for classes, cls, advice in _known_errors():
        if isinstance(error, classes):
            return cls(f"kafka {settings.bootstrap}: {action}: {error}; {advice}")
    return Retryable(f"kafka {settings.bootstrap}: {action}: {error}; is the broker up and reachable?")


@contextmanager
def naming_errors(settings: KafkaSettings, action: str) -> Iterator[None]:
    """Turn every kafka-python exception of the block into an error of ``streamcore.errors``."""
    from kafka import errors as kp

    try:
        yield
    except kp.KafkaError as error:
        raise python_error(error, action, settings) from error


def admin(settings: KafkaSettings) -> kafka.KafkaAdminClient:
    """Return kafka-python's administration client, connected."""
    import kafka

    with naming_errors(settings, "connect"):
        return kafka.KafkaAdminClient(**settings.kafka_python())


def control_producer(settings: KafkaSettings) -> kafka.KafkaProducer:
    """Return a kafka-python producer whose records all replicas acknowledge: for few records, each awaited."""
    import kafka

    with naming_errors(settings, "connect"):
        return kafka.KafkaProducer(
            **settings.kafka_python(),
            acks="all",
            enable_idempotence=True,
            allow_auto_create_topics=False,
            max_block_ms=settings.request_timeout_ms,
        )


def independent_consumer(settings: KafkaSettings, isolation: Isolation) -> kafka.KafkaConsumer:
    """Return a kafka-python consumer for ``assign``. It shares no code with the client that writes."""
    import kafka

    with naming_errors(settings, "connect"):
        return kafka.KafkaConsumer(
            **settings.kafka_python(),
            isolation_level=isolation.value,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            max_partition_fetch_bytes=8 * 1024 * 1024,
            max_poll_records=10_000,
        )
