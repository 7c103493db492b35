"""Executor pods in a service's settings, and what the driver's own pod says of itself in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamcore.errors import ConfigError
from streamcore.service.base import Document, Positive
from streamcore.spark.executors import DriverPod, Executors

_NEEDED = (
    "POD_NAME",
    "POD_NAMESPACE",
    "POD_IP",
    "HEADGATE_IMAGE",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
)


class ExecutorsDocument(Document):
    """Pods that do the work of a driver that is a pod; ``Executors`` says what each entry means."""

    count: Positive
    cores: Positive = 1
    memory: str = "512m"
    overhead: str = "1536m"
    cpu: str = "1"
    template: Path = Path("/etc/headgate/executor.yaml")
    secret_file: Path | None = None

    def value(self, environment: Mapping[str, str]) -> Executors:
        """With what the pod knows of itself; ``ConfigError`` when it is none, or is not told enough."""
        missing = [name for name in _NEEDED if not environment.get(name)]
        if missing:
            raise ConfigError(
                f"executors: the environment has no {', '.join(missing)}; a driver with executors is a pod that is "
                "told its name, address and image (docs/kubernetes.md), and elsewhere executors are left out"
            )
        if not self.template.is_file():
            raise ConfigError(f"executors: {self.template}: no such file; it is the template of the executors' pods")
        if self.secret_file is not None and not self.secret_file.is_file():
            raise ConfigError(f"executors: {self.secret_file}: no such file; mount the secret in driver and executors")
        return Executors(driver=_driver(environment), image=environment["HEADGATE_IMAGE"], **self.model_dump())


def _driver(environment: Mapping[str, str]) -> DriverPod:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    api = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return DriverPod(environment["POD_NAME"], environment["POD_NAMESPACE"], environment["POD_IP"], api)
