"""Builds the clients of the data plane and names their errors: code above this module never sees the library's
exception.

Promises that every failure becomes one of ``streamcore.errors`` with the brokers, the action and a next step. Options
that decide correctness (acknowledgements, idempotence, isolation, no topic creation by accident) are fixed here.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka as ck
import confluent_kafka.admin

from streamcore.errors import ConfigError, Fenced, Permanent, Retryable, StreamError
from streamcore.kafka.settings import KafkaSettings, Option


class Isolation(enum.StrEnum):
    """Which records of transactions a reader gets."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


#: librdkafka's own words; they are printed to stderr unless a logger takes them.
_LOG = logging.getLogger(__name__)
_E = ck.KafkaError
_FENCED = {_E._FENCED, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH}
_LOGIN = {_E._AUTHENTICATION, _E.SASL_AUTHENTICATION_FAILED, _E._SSL, _E.UNSUPPORTED_SASL_MECHANISM}
_RIGHTS = {
    _E.TOPIC_AUTHORIZATION_FAILED,
    _E.GROUP_AUTHORIZATION_FAILED,
    _E.CLUSTER_AUTHORIZATION_FAILED,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# Not _UNKNOWN_PARTITION: a client says so, too, of one whose leader it has lost for the moment.
_TOPIC = {_E.UNKNOWN_TOPIC_OR_PART, _E._UNKNOWN_TOPIC, _E.TOPIC_EXCEPTION}
_SIZE = {_E.MSG_SIZE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE, _E.INVALID_MSG_SIZE}
_NEVER = {_E._NOT_IMPLEMENTED, _E._UNSUPPORTED_FEATURE, _E.UNSUPPORTED_VERSION, _E.POLICY_VIOLATION}

#: Error codes -> (class, what to do). A code that is not here is Retryable: its outcome is unknown, and the caller's
#: own limit ends the attempts.
KNOWN: tuple[tuple[set[int], type[StreamError], str], ...] = (
    (_FENCED, Fenced, "another process writes under the same identity; this one must stop"),
    (_LOGIN, ConfigError, "check security protocol, mechanism, user name, password and TLS files"),
    (_RIGHTS, ConfigError, "grant this user the right, or use another user"),
    (_TOPIC, ConfigError, "create the topic, or correct its name"),
    (_SIZE, Permanent, "lower the record limit, or raise max.message.bytes of the topic"),
    ({_E.INVALID_TRANSACTION_TIMEOUT}, ConfigError, "raise transaction.max.timeout.ms of the broker, or lower ours"),
    ({_E._INVALID_ARG}, ConfigError, "correct the setting"),
    (_NEVER, Permanent, "the broker or client does not support the request"),
)


class ClientLog:
    """Keeps the last error that a confluent client reported beside its calls.

    A wrong password shows as a plain time-out of the call; the reason only comes through this call-back.
    """

    def __init__(self) -> None:
        self.last: ck.KafkaError | None = None

    def __call__(self, error: ck.KafkaError) -> None:
        self.last = error


def confluent_error(
    error: ck.KafkaError, action: str, settings: KafkaSettings, log: ClientLog | None = None
) -> StreamError:
    """Return the error of ours for one of confluent-kafka's; ``action`` names the attempt (``commit of batch 7``)."""
    codes = {error.code()} | ({log.last.code()} & _LOGIN if log and log.last is not None else set())
    detail = f"{error.name()}: {error.str()}"
    if log and log.last is not None and log.last.code() != error.code():
        detail += f" (before it: {log.last.str()})"
    for known, cls, advice in KNOWN:
        if codes & known:
            return cls(f"kafka {settings.bootstrap}: {action}: {detail}; {advice}")
    return Retryable(f"kafka {settings.bootstrap}: {action}: {detail}; is the broker up and reachable?")


@contextmanager
def naming_errors(settings: KafkaSettings, action: str, log: ClientLog | None = None) -> Iterator[None]:
    """Turn whatever a confluent client raises inside into an error of ours."""
    try:
        yield
    except ck.KafkaException as error:
        raise confluent_error(error.args[0], action, settings, log) from error


def _connecting(settings: KafkaSettings) -> dict[str, Option]:
    """Return the connection options. A lost broker is tried again within a second, unless the settings differ."""
    return {"reconnect.backoff.max.ms": 1_000, **settings.librdkafka()}


def _producing(settings: KafkaSettings) -> dict[str, Option]:
    """Return the producer options. The partitioner is Java's, so that a key lands on the same partition as with any
    other producer."""
    return {
        **_connecting(settings),
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "allow.auto.create.topics": False,
    }


def producer(settings: KafkaSettings, *, linger_ms: int = 20, queue_records: int = 500_000) -> ck.Producer:
    """Return an idempotent producer for volume, without transactions: generators and replays."""
    with naming_errors(settings, "producer"):
        options = {"linger.ms": linger_ms, "queue.buffering.max.messages": queue_records}
        return ck.Producer(_producing(settings) | options, logger=_LOG)


def transactional_producer(
    settings: KafkaSettings,
    transactional_id: str,
    options: dict[str, Option],
    log: ClientLog,
    on_failed: Callable[[ck.KafkaError, ck.Message], None],
) -> ck.Producer:
    """Return a producer that has yet to call ``init_transactions``; ``on_failed`` is called for undelivered records
    only."""
    callbacks = {"error_cb": log, "on_delivery": on_failed, "delivery.report.only.error": True}
    with naming_errors(settings, f"producer {transactional_id}"):
        identity: dict[str, Option] = {"transactional.id": transactional_id}
        return ck.Producer(_producing(settings) | options | identity | callbacks, logger=_LOG)


def consumer(
    settings: KafkaSettings,
    isolation: Isolation,
    *,
    report_ends: bool = True,
    end_wait_ms: int = 100,
    log: ClientLog | None = None,
) -> ck.Consumer:
    """Return a confluent consumer for ``assign``: commits nothing, belongs to no real group.

    ``report_ends``: an event when a partition's end is reached, at the latest ``end_wait_ms`` after it was.
    """
    options: dict[str, Option] = {
        "isolation.level": isolation.value,
        "enable.partition.eof": report_ends,
        "fetch.wait.max.ms": end_wait_ms,
        "auto.offset.reset": "earliest",
    }
    return _consumer(settings, options, log)


def range_consumer(settings: KafkaSettings, log: ClientLog) -> ck.Consumer:
    """Return a confluent consumer for volume: reads ahead in large pieces, and refuses to skip records that are
    gone."""
    options: dict[str, Option] = {
        "isolation.level": Isolation.COMMITTED.value,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": 4 * 1024 * 1024,
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 5,
        "fetch.error.backoff.ms": 100,
        "queued.min.messages": 100_000,
        "queued.max.messages.kbytes": 16 * 1024,
    }
    return _consumer(settings, options, log)


def _consumer(settings: KafkaSettings, options: dict[str, Option], log: ClientLog | None) -> ck.Consumer:
    fixed: dict[str, Option] = {
        "group.id": f"{settings.client_id}-unused",
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
    }
    with naming_errors(settings, "consumer"):
        return ck.Consumer(_connecting(settings) | fixed | options | ({"error_cb": log} if log else {}), logger=_LOG)


def volume_admin(settings: KafkaSettings) -> ck.admin.AdminClient:
    """Return confluent-kafka's administration client, for the requests of every cut."""
    with naming_errors(settings, "connect"):
        return ck.admin.AdminClient(_connecting(settings), logger=_LOG)
