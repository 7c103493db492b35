"""A Kafka broker that requires a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.local.java import Java
from headgate.local.servers.base import Lifetime, free_port
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from streamcore.kafka.settings import KafkaSettings, SaslMechanism, SecurityProtocol

SECRET = "correct-horse"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@contextmanager
def asking_broker(folder: Path, java: Java, password_env: str) -> Iterator[KafkaSettings]:
    """Run a broker; yield the login of ann, whose password, ``SECRET``, must be in the environment variable."""
    port = free_port()
    other = free_port(port)
    wanted = BrokerSettings(
        folder, port, lifetime=Lifetime.WITH_PARENT, short_lived=True, extra=_asking_on(port, other)
    )
    with EmbeddedBroker(wanted, java) as broker:
        yield KafkaSettings(
            broker.bootstrap,
            SecurityProtocol.SASL_PLAINTEXT,
            SaslMechanism.PLAIN,
            username="ann",
            password_env=password_env,
            request_timeout_ms=60_000,  # a guard: machines are shared
        )


def _asking_on(port: int, controller_port: int) -> tuple[tuple[str, str], ...]:
    """Start a broker and return its settings. It takes ann's password only."""
    return (
        ("listeners", f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"),
        ("controller.quorum.voters", f"1@127.0.0.1:{controller_port}"),
        ("listener.security.protocol.map", "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"),
        ("inter.broker.listener.name", "SASL_PLAINTEXT"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            f'{_MODULE} required username="self" password="self" user_self="self" user_ann="{SECRET}";',
        ),
    )
