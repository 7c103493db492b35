"""Settings of executor pods. The address, name and image of the driver's pod come from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import ConfigError
from streamcore.service.config.base import Document, Positive
from streamcore.spark.executors import DriverPod, Executors

POD_NAME = EnvironmentVariable(
    "POD_NAME",
    "Name of the driver's pod; needed with executors and with `HEADGATE_CONTROL_CHANNEL=pod`.",
    Reader.SERVICE,
)
POD_NAMESPACE = EnvironmentVariable(
    "POD_NAMESPACE",
    "Namespace of the driver's pod; needed with executors and with `HEADGATE_CONTROL_CHANNEL=pod`.",
    Reader.SERVICE,
)
_POD_IP = EnvironmentVariable(
    "POD_IP", "Address at which executors reach the driver's pod; needed with executors.", Reader.SERVICE
)
_IMAGE = EnvironmentVariable("HEADGATE_IMAGE", "Image of the executor pods; needed with executors.", Reader.SERVICE)
_API_HOST = EnvironmentVariable(
    "KUBERNETES_SERVICE_HOST",
    "Host of the API server; needed with executors. Kubernetes sets it in every pod.",
    Reader.SERVICE,
)
_API_PORT = EnvironmentVariable(
    "KUBERNETES_SERVICE_PORT",
    "Port of the API server; needed with executors. Kubernetes sets it in every pod.",
    Reader.SERVICE,
)
_NEEDED = (POD_NAME, POD_NAMESPACE, _POD_IP, _IMAGE, _API_HOST, _API_PORT)


class ExecutorsDocument(Document):
    """Executor pods of a driver that is a pod."""

    count: Annotated[Positive, Field(description="Number of executor pods.")]
    cores: Annotated[Positive, Field(description="Tasks that an executor runs at once.")] = 1
    memory: Annotated[str, Field(description="Memory of an executor's JVM, such as 512m.")] = "512m"
    overhead: Annotated[
        str,
        Field(description="Memory of an executor beside its JVM, for Python workers, such as 1536m."),
    ] = "1536m"
    cpu: Annotated[str, Field(description="CPU request of an executor, as in a pod.")] = "1"
    template: Annotated[Path, Field(description="Pod template of the executors.")] = Path("/etc/headgate/executor.yaml")
    secret_file: Annotated[
        Path | None,
        Field(description="File with the secret that driver and executors authenticate with; without it they do not."),
    ] = None

    def to_executors(self, environment: Mapping[str, str]) -> Executors:
        """Return the executors that a Spark session is built with.

        ``environment``: the environment variables of the driver's pod. ``ConfigError`` if one of them is missing
        (``_NEEDED``), or the template, or the secret file.
        """
        missing = [name for name in _NEEDED if not environment.get(name)]
        if missing:
            raise ConfigError(
                f"executors: the environment has no {', '.join(missing)}; a driver with executors is a pod that has "
                "these variables (docs/kubernetes.md); remove executors from the settings of any other driver"
            )
        if not self.template.is_file():
            raise ConfigError(f"executors: {self.template}: no such file; it is the template of the executors' pods")
        if self.secret_file is not None and not self.secret_file.is_file():
            raise ConfigError(f"executors: {self.secret_file}: no such file; mount the secret in driver and executors")
        return Executors(driver=_driver(environment), image=environment[_IMAGE], **self.model_dump())


def _driver(environment: Mapping[str, str]) -> DriverPod:
    host, port = environment[_API_HOST], environment[_API_PORT]
    api = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return DriverPod(environment[POD_NAME], environment[POD_NAMESPACE], environment[_POD_IP], api)
