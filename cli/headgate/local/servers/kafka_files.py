"""The files of a local broker: its settings, its log, its formatted data folder. ``kafka`` starts the broker.

The settings serve development: one node, everything with replication 1, no automatic topics, and a bound in bytes for
every partition. No record is deleted by its age, so that an app that was stopped for a month can continue.
"""

from __future__ import annotations

import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import BrokerError
from headgate.local.servers.files import JavaServerFiles, most_relevant_line

_SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
log.dirs={data}

auto.create.topics.enable=false
num.partitions=4
default.replication.factor=1
min.insync.replicas=1
message.max.bytes=4194304

log.retention.ms=-1
log.retention.bytes={partition_bytes}
log.segment.bytes={segment_bytes}
log.retention.check.interval.ms=10000
log.segment.delete.delay.ms=10000
log.cleaner.dedupe.buffer.size=16777216
offsets.retention.minutes=525600

offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1

group.initial.rebalance.delay.ms=0
# After a kill the next start waits this long for the dead registration; much less would fence a busy machine's broker.
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
num.network.threads=2
num.io.threads=4
{extra}
"""
_SEGMENTS_PER_PARTITION = 8  # a partition exceeds its bound by one segment at most


@dataclass(frozen=True, slots=True)
class BrokerFiles(JavaServerFiles):
    """The paths of one broker."""

    @property
    def server(self) -> Path:
        """Kafka's settings; the path in its command line also identifies the process."""
        return self.folder / "server.properties"

    @property
    def classes(self) -> Path:
        """The archive of classes that the JVM writes when it ends."""
        return self.folder / "classes.jsa"

    @property
    def formatted_marker(self) -> Path:
        """A file that exists once the data folder is completely formatted."""
        return self.folder / "formatted"

    def write_settings(self, port: int, controller_port: int, partition_bytes: int, extra: str) -> None:
        """Write Kafka's settings and Log4j's. ``extra``: further lines of server.properties."""
        self.folder.mkdir(parents=True, exist_ok=True)
        segment_bytes = max(1_048_576, partition_bytes // _SEGMENTS_PER_PARTITION)
        text = _SERVER.format(
            port=port,
            controller_port=controller_port,
            data=self.folder / "data",
            partition_bytes=partition_bytes,
            segment_bytes=segment_bytes,
            extra=extra,
        )
        self.server.write_text(text, encoding="utf-8")
        self.write_logging()

    def format(self, java: list[str]) -> None:
        """Format the data folder unless it is formatted. ``java``: the command line up to the main class."""
        if self.formatted_marker.exists():
            return
        cluster = (
            "H" + secrets.token_urlsafe(16)[1:]
        )  # an id that does not begin with "-", which the tool would take for an option
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c", str(self.server)]
        process = subprocess.run([*java, *tool], capture_output=True, text=True, check=False)
        if process.returncode != 0:
            reason = most_relevant_line([*process.stdout.splitlines(), *process.stderr.splitlines()])
            raise BrokerError(f"broker: cannot prepare {self.folder}: {reason}; delete that folder and try again")
        self.formatted_marker.touch()
