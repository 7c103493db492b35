"""Builds confluent-kafka clients, and turns their exceptions into errors of ``streamcore.errors``.

Every error names the brokers, the action and a remedy. Options that correctness depends on (acknowledgements,
idempotence, isolation, no automatic topic creation) are fixed here.
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


class _ClientMessages(logging.Handler):
    """Keeps the last message of librdkafka, such as why it cannot connect. It has several a second while a broker is
    down; what people must know is in the errors of calls, and in the reports of ``broker_watch``."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message, without the names of the client and its thread."""
        self._last = record.getMessage().rpartition("]: ")[2]

    def take(self) -> str:
        """Return the last message since the call before, or an empty text."""
        last, self._last = self._last, ""
        return last


MESSAGES = _ClientMessages()
#: The logger of librdkafka's messages, which go to stderr without one.
_LOG = logging.getLogger(f"{__name__}.librdkafka")
_LOG.addHandler(MESSAGES)
_LOG.propagate = False
_E = ck.KafkaError
_FENCED = {_E._FENCED, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH}
_LOGIN = {_E._AUTHENTICATION, _E.SASL_AUTHENTICATION_FAILED, _E._SSL, _E.UNSUPPORTED_SASL_MECHANISM}
_RIGHTS = {
    _E.TOPIC_AUTHORIZATION_FAILED,
    _E.GROUP_AUTHORIZATION_FAILED,
    _E.CLUSTER_AUTHORIZATION_FAILED,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# Not _UNKNOWN_PARTITION: a client also reports it while a partition has no leader.
_TOPIC = {_E.UNKNOWN_TOPIC_OR_PART, _E._UNKNOWN_TOPIC, _E.TOPIC_EXCEPTION}
_SIZE = {_E.MSG_SIZE_TOO_LARGE, _E.RECORD_LIST_TOO_LARGE, _E.INVALID_MSG_SIZE}
_NEVER = {_E._NOT_IMPLEMENTED, _E._UNSUPPORTED_FEATURE, _E.UNSUPPORTED_VERSION, _E.POLICY_VIOLATION}

_OTHER_WRITER = (
    "another process of this app, with this checkpoint or a copy of it, began to write; this one ends, and that one "
    "goes on. Nothing is lost. If you want both, give each an app name and a checkpoint of its own"
)
#: (error codes, error class, remedy). Other codes are ``Retryable``: their outcome is unknown, and the caller limits
#: the number of attempts.
KNOWN: tuple[tuple[set[int], type[StreamError], str], ...] = (
    (_FENCED, Fenced, _OTHER_WRITER),
    (_LOGIN, ConfigError, "check security protocol, mechanism, user name, password and TLS files"),
    (_RIGHTS, ConfigError, "grant this user the right, or use another user"),
    (_TOPIC, ConfigError, "create the topic, or correct its name"),
    (_SIZE, Permanent, "lower the record limit, or raise max.message.bytes of the topic"),
    ({_E.INVALID_TRANSACTION_TIMEOUT}, ConfigError, "raise transaction.max.timeout.ms of the broker, or lower ours"),
    ({_E._INVALID_ARG}, ConfigError, "correct the setting"),
    (_NEVER, Permanent, "the broker or client does not support the request"),
)


class ClientLog:
    """An error callback that keeps the last error of a confluent client.

    With a wrong password, for example, a call only times out; the client reports the reason to this callback.
    ``was_cut_off``: whether all brokers were away at some time.
    """

    def __init__(self) -> None:
        self.last: ck.KafkaError | None = None
        self.was_cut_off = False

    def __call__(self, error: ck.KafkaError) -> None:
        self.last = error
        self.was_cut_off |= error.code() == ck.KafkaError._ALL_BROKERS_DOWN


def confluent_error(
    error: ck.KafkaError, action: str, settings: KafkaSettings, log: ClientLog | None = None
) -> StreamError:
    """Return the error of ``streamcore.errors`` for an error of confluent-kafka.

    ``action`` names the attempt (``commit of batch 7``). ``log``: the client's callback, whose last error is added.
    """
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
    """Turn every confluent-kafka exception of the block into an error of ``streamcore.errors``."""
    try:
        yield
    except ck.KafkaException as error:
        raise confluent_error(error.args[0], action, settings, log) from error


def _connecting(settings: KafkaSettings) -> dict[str, Option]:
    """Return the connection options. The client reconnects within a second, unless the settings override it."""
    return {"reconnect.backoff.max.ms": 1_000, **settings.librdkafka()}


def _producing(settings: KafkaSettings) -> dict[str, Option]:
    """Return the producer options. The partitioner is the default of Java clients, so that every producer sends a key
    to one partition."""
    return {
        **_connecting(settings),
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "allow.auto.create.topics": False,
    }


def producer(settings: KafkaSettings, *, linger_ms: int = 20, queue_records: int = 500_000) -> ck.Producer:
    """Return an idempotent producer without transactions, for large volumes: generators and replays."""
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
    """Return a transactional producer, before ``init_transactions``. ``on_failed`` is called for each undelivered
    record."""
    return idempotent_producer(settings, options | {"transactional.id": transactional_id}, log, on_failed)


def idempotent_producer(
    settings: KafkaSettings,
    options: dict[str, Option],
    log: ClientLog,
    on_failed: Callable[[ck.KafkaError, ck.Message], None],
) -> ck.Producer:
    """Return an idempotent producer that calls ``on_failed`` for each undelivered record, and ``log`` for errors."""
    callbacks = {"error_cb": log, "on_delivery": on_failed, "delivery.report.only.error": True}
    with naming_errors(settings, f"producer {options.get('transactional.id', '')}".rstrip()):
        return ck.Producer(_producing(settings) | options | callbacks, logger=_LOG)


def consumer(
    settings: KafkaSettings,
    isolation: Isolation,
    *,
    report_ends: bool = True,
    end_wait_ms: int = 100,
    log: ClientLog | None = None,
) -> ck.Consumer:
    """Return a confluent consumer for ``assign``. It commits no offsets and joins no group.

    ``report_ends``: the consumer reports the end of a partition, at most ``end_wait_ms`` after reaching it.
    """
    options: dict[str, Option] = {
        "isolation.level": isolation.value,
        "enable.partition.eof": report_ends,
        "fetch.wait.max.ms": end_wait_ms,
        "auto.offset.reset": "earliest",
    }
    return _consumer(settings, options, log)


def range_consumer(settings: KafkaSettings, log: ClientLog) -> ck.Consumer:
    """Return a confluent consumer for large volumes. It reads ahead in large fetches, and reports an error instead of
    skipping deleted records."""
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
    """Return confluent-kafka's administration client, which is fast enough for requests in every cut."""
    with naming_errors(settings, "connect"):
        return ck.admin.AdminClient(_connecting(settings), logger=_LOG)
