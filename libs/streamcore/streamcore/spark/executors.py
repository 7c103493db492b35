"""Executors as pods of a Kubernetes cluster: Spark's properties for a driver that is a pod itself.

The driver is in client mode: another controller owns its pod, and Spark makes the executors' pods only,
which the driver's pod owns, so that they go with it. What such a pod needs beyond Spark's own (volumes, security
context, labels) is in a template, a file. No secret passes through here: pods mount theirs. Imports nothing of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DRIVER_PORT = 7078
BLOCKS_PORT = 7079
#: The container of the template.
CONTAINER = "executor"
_PREFIX_LENGTH = 47  # Spark adds its own end to the names of pods


@dataclass(frozen=True, slots=True)
class DriverPod:
    """The pod that this process is in, and the API server's address."""

    name: str
    namespace: str
    address: str
    api: str


@dataclass(frozen=True, slots=True)
class Executors:
    """``count`` pods with ``cores`` tasks at once in each. ``memory`` is the JVM's heap, ``overhead`` is for Python
    workers and RocksDB; the pod's limit is their sum. ``cpu``: requested of the cluster. ``secret_file``: mounted in
    driver and executors, which prove to each other that they know what is in it; None: they believe everybody."""

    driver: DriverPod
    image: str
    template: Path
    count: int
    cores: int
    memory: str
    overhead: str
    cpu: str
    secret_file: Path | None = None

    @property
    def slots(self) -> int:
        """Tasks at once in all of them."""
        return self.count * self.cores

    def options(self) -> dict[str, str]:
        """Spark's properties."""
        return self._where() | self._what() | self._when() | self._trust()

    def _trust(self) -> dict[str, str]:
        if self.secret_file is None:
            return {}
        return {"spark.authenticate": "true", "spark.authenticate.secret.file": str(self.secret_file)}

    def _where(self) -> dict[str, str]:
        return {
            "spark.master": f"k8s://{self.driver.api}",
            "spark.submit.deployMode": "client",
            "spark.kubernetes.namespace": self.driver.namespace,
            "spark.kubernetes.driver.pod.name": self.driver.name,
            # Executors are given the address that the driver binds to.
            "spark.driver.host": self.driver.address,
            "spark.driver.bindAddress": self.driver.address,
            "spark.driver.port": str(DRIVER_PORT),
            "spark.blockManager.port": str(BLOCKS_PORT),
        }

    def _what(self) -> dict[str, str]:
        return {
            "spark.kubernetes.container.image": self.image,
            "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
            "spark.kubernetes.executor.podTemplateFile": str(self.template),
            "spark.kubernetes.executor.podTemplateContainerName": CONTAINER,
            "spark.kubernetes.executor.podNamePrefix": self.driver.name[:_PREFIX_LENGTH].rstrip("-."),
            # Nothing but pods is made, so nothing else has to be looked for at the end, which would need more rights.
            "spark.kubernetes.executor.disableConfigMap": "true",
            "spark.kubernetes.driver.service.deleteOnTermination": "false",
            "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
            "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
            "spark.kubernetes.executor.request.cores": self.cpu,
            "spark.executor.instances": str(self.count),
            "spark.executor.cores": str(self.cores),
            "spark.executor.memory": self.memory,
            "spark.executor.memoryOverhead": self.overhead,
        }

    def _when(self) -> dict[str, str]:
        return {
            # The first cut waits for all of them; without, it would be given to the first alone, with all state.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            # A pod that is gone is replaced at the next look.
            "spark.kubernetes.allocation.batch.delay": "1s",
            # An app runs for months: failures that are long ago do not count.
            "spark.executor.failuresValidityInterval": "10m",
            "spark.dynamicAllocation.enabled": "false",
        }
