"""What reports of outages (``streamcore.outages``) name: the brokers, and their transactions."""

from __future__ import annotations

from streamcore.cuts.writer_id import WriterId
from streamcore.kafka.settings import KafkaSettings
from streamcore.outages import Dependency

_MEANWHILE = "Until it is back the app commits no cut, and loses nothing"
#: A writer that was cut off repeats its transaction within this time after the broker is back.
_TRANSACTIONS_GRACE_S = 20.0


def broker_dependency(settings: KafkaSettings) -> Dependency:
    """Return the brokers of these settings as a system that an app needs."""
    remedy = "Start the broker, or mend the network; the app goes on by itself"
    return Dependency(f"Kafka {settings.bootstrap}", _MEANWHILE, remedy)


def transactions_dependency(settings: KafkaSettings, writer: WriterId) -> Dependency:
    """Return the transactions of a writer. They may be unavailable while the brokers answer other requests."""
    return Dependency(
        f"Kafka {settings.bootstrap}, transaction coordinator of {writer.transactional_id},",
        _MEANWHILE,
        "Look at the log of the broker and at the replicas of the topic __transaction_state",
        _TRANSACTIONS_GRACE_S,
        broker_dependency(settings),
    )
