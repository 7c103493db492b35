"""The files of a local broker: its settings, its log, its formatted data folder. Starting it is ``broker``'s job.

The settings serve development: one node, everything with replication 1, no topic made by accident, and a bound on
the disk in bytes for every partition. Nothing is deleted by age, so that an app that was stopped for a month goes on
where it was.
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
_SEGMENTS_PER_PARTITION = 8  # a partition outgrows its bound by one segment at most


@dataclass(frozen=True, slots=True)
class BrokerFiles(JavaServerFiles):
    """Where everything of one broker is."""

    @property
    def server(self) -> Path:
        """Kafka's settings; the path also marks the process as ours."""
        return self.folder / "server.properties"

    @property
    def classes(self) -> Path:
        """Where a JVM leaves its archive of classes when it ends."""
        return self.folder / "classes.jsa"

    @property
    def formatted_marker(self) -> Path:
        """Exists once the data folder is formatted completely."""
        return self.folder / "formatted"

    def write_settings(self, port: int, controller_port: int, partition_bytes: int, extra: str) -> None:
        """Write both settings files."""
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
        """Prepare the data folder, once. ``java`` is the command up to the main class."""
        if self.formatted_marker.exists():
            return
        cluster = "H" + secrets.token_urlsafe(16)[1:]  # an identifier that is no option to the tool
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c", str(self.server)]
        done = subprocess.run([*java, *tool], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            reason = most_relevant_line([*done.stdout.splitlines(), *done.stderr.splitlines()])
            raise BrokerError(f"broker: cannot prepare {self.folder}: {reason}; delete that folder and try again")
        self.formatted_marker.touch()
