"""Creates the topics that an app needs and checks those that are there, before anything is written.

Promises to be repeatable, and never to change a topic that exists unless ``alter_topic`` is asked to: a partition count
or clean-up policy that does not fit is a ``ConfigError`` that names the present value, the needed value and the way to
get it.
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
    """A topic as it should be. ``replication`` -1: the broker's default. ``config``: further topic settings, used at
    creation only."""

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
    """A topic as it is."""

    name: str
    partitions: int
    cleanup_policy: str
    max_message_bytes: int


def wait_for_broker(settings: KafkaSettings, limit_ms: int) -> None:
    """Return when a broker answers; ``Retryable`` after ``limit_ms``, ``ConfigError`` when it refuses the login."""
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
            client.poll(0)  # hear a refused login


def ensure_topics(settings: KafkaSettings, specs: Iterable[TopicSpec]) -> tuple[TopicState, ...]:
    """Create missing topics, check existing ones (``ConfigError``), and return the state in the specs' order."""
    wanted = tuple(specs)
    with closing(control_plane.admin(settings)) as admin:
        present = _describe(admin, settings, [s.name for s in wanted])
        for spec in wanted:
            if spec.name not in present:
                _create(admin, settings, spec)
        with control_plane.naming_errors(settings, "waiting for new topics"):
            admin.wait_for_topics([s.name for s in wanted], timeout_ms=settings.request_timeout_ms)
        present = _describe(admin, settings, [s.name for s in wanted])
    for spec in wanted:
        check_topic(spec, present.get(spec.name))
    return tuple(present[spec.name] for spec in wanted)


def describe(settings: KafkaSettings, names: Sequence[str]) -> dict[str, TopicState]:
    """State of those of the topics that exist."""
    with closing(control_plane.admin(settings)) as admin:
        return _describe(admin, settings, names)


def alter_topic(settings: KafkaSettings, name: str, options: Mapping[str, str | None]) -> None:
    """Change these settings of a topic, and no others; None: back to the broker's default."""
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType

    changes = {n: (AlterConfigOp.DELETE if v is None else AlterConfigOp.SET, v) for n, v in options.items()}
    with (
        closing(control_plane.admin(settings)) as admin,
        control_plane.naming_errors(settings, f"change settings of topic {name}"),
    ):
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, changes)])


def delete_topics(settings: KafkaSettings, names: Sequence[str]) -> None:
    """Delete those of the topics that exist."""
    with closing(control_plane.admin(settings)) as admin:
        present = list(_describe(admin, settings, names))
        if present:
            with control_plane.naming_errors(settings, f"delete topics {present}"):
                admin.delete_topics(present)


def check_topic(spec: TopicSpec, state: TopicState | None) -> None:
    """``ConfigError`` when the topic does not fit its spec. Retention and the like are the operator's business."""
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
    """``ConfigError`` when a broker allows less than our transaction time-out.

    A broker whose settings this user may not read is passed over: ``init_transactions`` will be refused there with
    the same advice.
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
    from kafka.admin import ConfigResource, ConfigResourceType

    try:
        with control_plane.naming_errors(settings, "read broker settings"):
            brokers = [int(b["broker_id"]) for b in admin.describe_cluster()["brokers"]]
            wanted = [ConfigResource(ConfigResourceType.BROKER, str(b), {_MAX_TIMEOUT: None}) for b in brokers]
            found = admin.describe_configs(wanted, config_filter="all").get("broker", {})
    except ConfigError:
        return []
    return [(int(b), int(options[_MAX_TIMEOUT]["value"])) for b, options in found.items() if _MAX_TIMEOUT in options]


def _create(admin: kafka.KafkaAdminClient, settings: KafkaSettings, spec: TopicSpec) -> None:
    from kafka import errors as kp

    wanted = {"num_partitions": spec.partitions, "replication_factor": spec.replication, "configs": spec.options}
    with control_plane.naming_errors(settings, f"create topic {spec.name}"):
        try:
            admin.create_topics({spec.name: wanted})
        except kp.TopicAlreadyExistsError:
            return  # another process was faster; the check that follows looks at its topic


def _describe(admin: kafka.KafkaAdminClient, settings: KafkaSettings, names: Sequence[str]) -> dict[str, TopicState]:
    from kafka import errors as kp
    from kafka.admin import ConfigResource, ConfigResourceType

    with control_plane.naming_errors(settings, f"describe topics {list(names)}"):
        found = {}
        for topic in admin.describe_topics(list(names)):
            error = kp.for_code(topic["error_code"])
            if error is kp.NoError:
                found[str(topic["name"])] = len(topic["partitions"])
            elif error is not kp.UnknownTopicOrPartitionError:
                raise error(f"topic {topic['name']}")
        if not found:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, None) for name in found]
        options = admin.describe_configs(resources, config_filter="all").get("topic", {})
    return {name: _state(name, partitions, options.get(name, {})) for name, partitions in found.items()}


def _state(name: str, partitions: int, options: dict[str, dict[str, object]]) -> TopicState:
    if not options:
        raise Retryable(f"topic {name}: its settings were not readable; try again")
    policy, size = options["cleanup.policy"]["value"], options["max.message.bytes"]["value"]
    return TopicState(name, partitions, str(policy), int(str(size)))
