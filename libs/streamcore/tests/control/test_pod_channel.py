"""Commands and status as annotations of a pod, on a real API server: also when it is unavailable or denies access.

The pod never runs: only its annotations are used. Between the channel and the server is a relay that a
test cuts.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from kubernetes import client, config

from streamcore.control.commands import COMMAND_ANNOTATION
from streamcore.control.pod_channel import PodAnnotationChannel
from streamcore.control.status import STATUS_ANNOTATION
from streamcore.errors import ConfigError, Retryable

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif("KUBECONFIG" not in os.environ, reason="needs a cluster"),
]
ALL = ["get", "list", "watch"]


@dataclass
class Relay:
    """Relays connections to the API server; ``cut`` ends them and refuses new ones, ``restore`` accepts them again."""

    host: str
    port: int
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    open: list[socket.socket] = field(default_factory=list)
    is_cut: bool = False

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                if self.is_cut:
                    near.close()
                    continue
                far = socket.create_connection((self.host, self.port))
                self.open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self.pump, args=(one, other), daemon=True).start()

    def pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        self.is_cut = True
        for end in self.open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.open.clear()

    def restore(self) -> None:
        self.is_cut = False


@dataclass
class Place:
    """A namespace with a pod and a service account with the permissions that a test gives it."""

    admin: client.CoreV1Api
    rights: client.RbacAuthorizationV1Api
    namespace: str
    relay: Relay
    settings: client.Configuration

    def allow(self, *verbs: str) -> None:
        rule = client.V1PolicyRule(api_groups=[""], resources=["pods"], verbs=list(verbs))
        role = client.V1Role(metadata=client.V1ObjectMeta(name="driver"), rules=[rule])
        self.rights.create_namespaced_role(self.namespace, role)
        subject = client.RbacV1Subject(kind="ServiceAccount", name="driver", namespace=self.namespace)
        of = client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="driver")
        binding = client.V1RoleBinding(metadata=client.V1ObjectMeta(name="driver"), role_ref=of, subjects=[subject])
        self.rights.create_namespaced_role_binding(self.namespace, binding)

    def connect(self) -> client.CoreV1Api:
        """Return a client of the service account, through the relay."""
        spec = client.V1TokenRequestSpec(audiences=[], expiration_seconds=3_600)
        request = client.AuthenticationV1TokenRequest(spec=spec)
        status = self.admin.create_namespaced_service_account_token("driver", self.namespace, request).status
        assert status is not None
        settings = client.Configuration()
        settings.host, settings.ssl_ca_cert = self.relay.address, self.settings.ssl_ca_cert
        settings.tls_server_name = "kubernetes.default.svc"
        settings.api_key = {"authorization": f"Bearer {status.token}"}
        settings.retries = False
        return client.CoreV1Api(client.ApiClient(settings))

    def send_request(self, request: str) -> None:
        self.admin.patch_namespaced_pod(
            "driver", self.namespace, {"metadata": {"annotations": {COMMAND_ANNOTATION: request}}}
        )

    def published_status(self) -> str | None:
        pod = self.admin.read_namespaced_pod("driver", self.namespace)
        assert pod.metadata is not None
        return (pod.metadata.annotations or {}).get(STATUS_ANNOTATION)


@pytest.fixture
def place() -> Iterator[Place]:
    settings = client.Configuration()
    config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    admin = client.CoreV1Api(client.ApiClient(settings))
    rights = client.RbacAuthorizationV1Api(client.ApiClient(settings))
    namespace = f"pod-{uuid.uuid4().hex[:8]}"
    admin.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    account = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="driver"))
    admin.create_namespaced_service_account(namespace, account)
    wait_until(lambda: bool(admin.read_namespaced_service_account("default", namespace)))
    container = client.V1Container(name="driver", image="nothing")
    spec = client.V1PodSpec(containers=[container], node_selector={"never": "runs"})
    admin.create_namespaced_pod(
        namespace, client.V1Pod(metadata=client.V1ObjectMeta(name="driver", annotations={}), spec=spec)
    )
    host = urlsplit(settings.host)
    relay = Relay(str(host.hostname), int(host.port or 443))
    threading.Thread(target=relay.serve, daemon=True).start()
    yield Place(admin, rights, namespace, relay, settings)
    relay.cut()
    relay.listener.close()
    admin.delete_namespace(namespace)


def wait_until(holds: Callable[[], bool], limit_s: float = 40) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(client.ApiException):
            if holds():
                return
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


@contextlib.contextmanager
def channel(place: Place, watch_s: int = 60) -> Iterator[PodAnnotationChannel]:
    box = PodAnnotationChannel(place.namespace, "driver", place.connect, watch_s)
    try:
        yield box
    finally:
        box.close()


def test_the_channel_delivers_requests_and_publishes_the_status(place: Place) -> None:
    place.allow(*ALL, "patch")
    place.send_request("first")
    with channel(place) as box:
        assert box.last_status() is None
        wait_until(lambda: box.latest_command() == "first")
        box.publish('{"phase":"running"}')
        assert place.published_status() == box.last_status() == '{"phase":"running"}'
        place.send_request("second")
        wait_until(lambda: box.latest_command() == "second")


def test_the_channel_delivers_requests_again_after_an_outage_of_the_server(place: Place) -> None:
    place.allow(*ALL, "patch")
    with channel(place) as box:
        place.send_request("before")
        wait_until(lambda: box.latest_command() == "before")
        place.relay.cut()
        with pytest.raises(Retryable):
            box.publish("lost")
        with pytest.raises(Retryable):
            box.last_status()
        place.send_request("meanwhile")
        time.sleep(2)
        assert box.latest_command() == "before"
        place.relay.restore()
        wait_until(lambda: box.latest_command() == "meanwhile")
        box.publish("found")
        assert place.published_status() == "found"


def test_a_watch_that_ends_is_restarted(place: Place) -> None:
    place.allow(*ALL, "patch")
    with channel(place, watch_s=1) as box:
        for number in range(4):
            time.sleep(1)
            place.send_request(str(number))
            wait_until(lambda number=number: box.latest_command() == str(number))  # type: ignore[misc]


def test_publishing_without_permission_raises(place: Place) -> None:
    place.allow(*ALL)
    with channel(place) as box, pytest.raises(ConfigError, match="forbidden"):
        box.publish("report")
