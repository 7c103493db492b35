"""A pod with the command of the product: it publishes rules, feeds events and reads output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.harness.cluster.kubectl import Namespace, wait_until

_DEPLOYMENT = "headgate-toolbox"
_SECURITY: Mapping[str, object] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
#: Reads a topic to its end with a client of its own: what is committed, or all that lies there. A line a record: when
#: it was made, in epoch milliseconds, and its value.
_READ = """
import sys, confluent_kafka as ck
bootstrap, topic, isolation = sys.argv[1:]
client = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
                      "isolation.level": isolation, "enable.partition.eof": True})
places = [ck.TopicPartition(topic, p, 0) for p in client.list_topics(topic).topics[topic].partitions]
client.assign(places)
ended = set()
while len(ended) < len(places):
    message = client.poll(1.0)
    if message is None:
        continue
    if message.error():
        if message.error().code() != ck.KafkaError._PARTITION_EOF:
            raise SystemExit(str(message.error()))
        ended.add(message.partition())
    elif message.value() is not None:
        sys.stdout.buffer.write(b"%d " % message.timestamp()[1] + message.value() + b"\\n")
"""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic. ``made_ms``: epoch milliseconds."""

    made_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The toolbox of the chart. ``image``: of further pods; ``bootstrap``: of Kafka, as pods reach it."""

    namespace: Namespace
    image: str
    bootstrap: str

    def run(self, *command: str, given: str = "", limit_s: float = 120.0) -> str:
        """Run a command of the image; return its output."""
        return self.namespace.kubectl(
            "exec", "-i", f"deploy/{_DEPLOYMENT}", "-c", "toolbox", "--", *command, given=given, limit_s=limit_s
        )

    def headgate(self, *arguments: str, given: str = "", limit_s: float = 120.0) -> str:
        """Run ``headgate``; return its output."""
        return self.run("headgate", *arguments, given=given, limit_s=limit_s)

    def records(self, topic: str, *, committed: bool = True) -> list[Record]:
        """Return the records of a topic, read by another client."""
        isolation = "read_committed" if committed else "read_uncommitted"
        lines = self.run("python", "-c", _READ, self.bootstrap, topic, isolation).encode().splitlines()
        return [Record(int(stamp), value) for stamp, value in (line.split(b" ", 1) for line in lines)]

    def feed(self, name: str, events: int, rate: float, seed: int) -> Feeder:
        """Send the events and product changes of the shop from a pod of its own."""
        what = [
            "headgate",
            "demo",
            "produce",
            "search",
            "--topic",
            "shop",
            "--bootstrap",
            self.bootstrap,
            "--events",
            str(events),
            "--rate",
            str(rate),
        ]
        self.start(name, [*what, "--seed", str(seed), "-o", "json"])
        return Feeder(self, name)

    def start(self, name: str, command: list[str]) -> None:
        """Run a command of the image in a pod of its own."""
        self.namespace.apply(self._pod(name, command))

    def wait_for_output(self, name: str, limit_s: float) -> str:
        """Wait until such a pod has succeeded; return its output."""
        wait_until(lambda: self._phase(name) in ("Succeeded", "Failed"), limit_s, f"{name} ends")
        output = self.namespace.kubectl("logs", name)
        assert self._phase(name) == "Succeeded", output
        return output

    def delete(self, name: str) -> None:
        """End such a pod."""
        self.namespace.kubectl("delete", "pod", name, "--ignore-not-found")

    def _phase(self, name: str) -> str:
        return str(self.namespace.get("pod", name)["status"]["phase"])

    def _pod(self, name: str, command: list[str]) -> dict[str, object]:
        container = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": command,
            "securityContext": _SECURITY,
            "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
        }
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 2,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Feeder:
    """A running feed."""

    toolbox: Toolbox
    name: str

    def wait(self, limit_s: float) -> int:
        """Wait until all is sent; return the number of events in the topic."""
        found: dict[str, Any] = json.loads(self.toolbox.wait_for_output(self.name, limit_s).splitlines()[-1])
        return int(found["next"])
