"""Creates the topics that an app needs and checks the existing ones, before anything is written.

All functions are idempotent. Only ``alter_topic`` changes a topic that exists. If the partition count or the clean-up
policy of a topic does not fit, ``ConfigError`` names the present value, the needed value and the command that sets it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamcore.errors import ConfigError, Retryable
from streamcore.kafka import admin_clients as control_plane
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    import kafka

#: Compaction that keeps a topic of markers or rules small: the default leaves a week or a gigabyte uncompacted.
COMPACTED = (("segment.ms", "3600000"), ("min.cleanable.dirty.ratio", "0.1"))
_MAX_TIMEOUT = "transaction.max.timeout.ms"
_PROBE_S = 1.0


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The desired state of a topic. ``replication`` -1: the broker's default. ``config``: further topic settings, used
    at creation only."""

    name: str
    partitions: int = 1
    compacted: bool = False
    retention_ms: int | None = None
    config: tuple[tuple[str, str], ...] = ()
    replication: int = -1

    @property
    def cleanup_policy(self) -> str:
        """Kafka's ``cleanup.policy``."""
        return "compact" if self.compacted else "delete"

    @property
    def options(self) -> dict[str, str]:
        """Topic settings at creation."""
        options = {"cleanup.policy": self.cleanup_policy} | (dict(COMPACTED) if self.compacted else {})
        if self.retention_ms is not None:
            options["retention.ms"] = str(self.retention_ms)
        return options | dict(self.config)


@dataclass(frozen=True, slots=True)
class TopicState:
    """The actual state of a topic."""

    name: str
    partitions: int
    cleanup_policy: str
    max_message_bytes: int


def wait_for_broker(settings: KafkaSettings, limit_ms: int) -> None:
    """Return when a broker answers. Raise ``Retryable`` after ``limit_ms``, and ``ConfigError`` if it rejects the
    login."""
    deadline = time.monotonic() + limit_ms / 1000
    log = clients.ClientLog()
    with closing(clients.consumer(settings, clients.Isolation.COMMITTED, log=log)) as client:
        while True:
            try:
                with clients.naming_errors(settings, f"connect within {limit_ms} ms", log):
                    client.list_topics(timeout=min(_PROBE_S, max(0.01, deadline - time.monotonic())))
                return
            except Retryable:
                if time.monotonic() > deadline:
                    raise
            client.poll(0)  # runs the error callback, which reports a rejected login


def ensure_topics(settings: KafkaSettings, specs: Iterable[TopicSpec]) -> tuple[TopicState, ...]:
    """Create the missing topics and return the state of all, in the order of ``specs``.

    Raises ``ConfigError`` if an existing topic does not fit its spec.
    """
    desired = tuple(specs)
    with closing(control_plane.admin(settings)) as admin:
        present = _describe(admin, settings, [s.name for s in desired])
        for spec in desired:
            if spec.name not in present:
                _create(admin, settings, spec)
        with control_plane.naming_errors(settings, "waiting for new topics"):
            admin.wait_for_topics([s.name for s in desired], timeout_ms=settings.request_timeout_ms)
        present = _describe(admin, settings, [s.name for s in desired])
    for spec in desired:
        check_topic(spec, present.get(spec.name))
    return tuple(present[spec.name] for spec in desired)


def describe(settings: KafkaSettings, names: Sequence[str]) -> dict[str, TopicState]:
    """Return the state of each topic that exists, by name."""
    with closing(control_plane.admin(settings)) as admin:
        return _describe(admin, settings, names)


def topic_names(settings: KafkaSettings) -> frozenset[str]:
    """Return the names of all topics that this user may see."""
    with (
        closing(clients.consumer(settings, clients.Isolation.COMMITTED)) as client,
        clients.naming_errors(settings, "list topics"),
    ):
        return frozenset(client.list_topics(timeout=settings.request_timeout_ms / 1000).topics)


def alter_topic(settings: KafkaSettings, name: str, options: Mapping[str, str | None]) -> None:
    """Set these settings of a topic, and leave its others unchanged. None restores the broker's default."""
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

    changes = {n: (AlterConfigOp.DELETE if v is None else AlterConfigOp.SET, v) for n, v in options.items()}
    with (
        closing(control_plane.admin(settings)) as admin,
        control_plane.naming_errors(settings, f"change settings of topic {name}"),
    ):
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, changes)])


def delete_topics(settings: KafkaSettings, names: Sequence[str]) -> None:
    """Delete the topics; names without a topic are ignored."""
    with closing(control_plane.admin(settings)) as admin:
        present = list(_describe(admin, settings, names))
        if present:
            with control_plane.naming_errors(settings, f"delete topics {present}"):
                admin.delete_topics(present)


def check_topic(spec: TopicSpec, state: TopicState | None) -> None:
    """Raise ``ConfigError`` if the topic is missing, or its partition count or clean-up policy differs from the spec.

    Other settings, such as the retention, are not checked: their owner may change them.
    """
    if state is None:
        raise ConfigError(f"topic {spec.name}: does not exist; create it with {spec.partitions} partitions")
    if state.partitions != spec.partitions:
        raise ConfigError(
            f"topic {spec.name}: has {state.partitions} partitions, the app is set to {spec.partitions}; "
            "set the app to the topic's number, or use another topic (changing it moves keys between partitions)"
        )
    if state.cleanup_policy != spec.cleanup_policy:
        raise ConfigError(
            f"topic {spec.name}: cleanup.policy is {state.cleanup_policy}, the app needs {spec.cleanup_policy}; "
            f"set it with kafka-configs --alter --topic {spec.name} --add-config cleanup.policy={spec.cleanup_policy}"
        )


def check_transaction_timeout(settings: KafkaSettings, transaction_timeout_ms: int) -> None:
    """Raise ``ConfigError`` if a broker allows only a shorter transaction time-out.

    If this user may not read the brokers' settings, nothing is checked: ``init_transactions`` then fails with the same
    advice.
    """
    with closing(control_plane.admin(settings)) as admin:
        for broker, allowed_ms in _max_transaction_timeouts(admin, settings):
            if allowed_ms < transaction_timeout_ms:
                raise ConfigError(
                    f"kafka broker {broker}: {_MAX_TIMEOUT} is {allowed_ms}, our transaction time-out is "
                    f"{transaction_timeout_ms}; set {_MAX_TIMEOUT}={transaction_timeout_ms} (or more) in the broker's "
                    f"server.properties and restart it, or lower transaction_timeout_ms to {allowed_ms}"
                )


def _max_transaction_timeouts(admin: kafka.KafkaAdminClient, settings: KafkaSettings) -> list[tuple[int, int]]:
    """Return the longest transaction time-out in milliseconds of each broker (by id), as far as they can be read."""
    from kafka.admin import ConfigResource, ConfigResourceType

    try:
        with control_plane.naming_errors(settings, "read broker settings"):
            brokers = [int(b["broker_id"]) for b in admin.describe_cluster()["brokers"]]
            resources = [ConfigResource(ConfigResourceType.BROKER, str(b), {_MAX_TIMEOUT: None}) for b in brokers]
            configs = admin.describe_configs(resources, config_filter="all").get("broker", {})
    except ConfigError:
        return []
    return [(int(b), int(options[_MAX_TIMEOUT]["value"])) for b, options in configs.items() if _MAX_TIMEOUT in options]


def _create(admin: kafka.KafkaAdminClient, settings: KafkaSettings, spec: TopicSpec) -> None:
    from kafka import errors as kp

    request = {"num_partitions": spec.partitions, "replication_factor": spec.replication, "configs": spec.options}
    with control_plane.naming_errors(settings, f"create topic {spec.name}"):
        try:
            admin.create_topics({spec.name: request})
        except kp.TopicAlreadyExistsError:
            return  # another process was faster; ensure_topics then checks the topic that it created


def _describe(admin: kafka.KafkaAdminClient, settings: KafkaSettings, names: Sequence[str]) -> dict[str, TopicState]:
    from kafka import errors as kp
    from kafka.admin import ConfigResource, ConfigResourceType

    with control_plane.naming_errors(settings, f"describe topics {list(names)}"):
        partition_counts = {}
        for topic in admin.describe_topics(list(names)):
            error = kp.for_code(topic["error_code"])
            if error is kp.NoError:
                partition_counts[str(topic["name"])] = len(topic["partitions"])
            elif error is not kp.UnknownTopicOrPartitionError:
                raise error(f"topic {topic['name']}")
        if not partition_counts:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, None) for name in partition_counts]
        options = admin.describe_configs(resources, config_filter="all").get("topic", {})
    return {name: _state(name, count, options.get(name, {})) for name, count in partition_counts.items()}


def _state(name: str, partitions: int, options: dict[str, dict[str, object]]) -> TopicState:
    """Return the state of a topic. Raise ``Retryable`` if the broker reported no settings for it."""
    if not options:
        raise Retryable(f"topic {name}: its settings were not readable; try again")
    policy, size = options["cleanup.policy"]["value"], options["max.message.bytes"]["value"]
    return TopicState(name, partitions, str(policy), int(str(size)))
