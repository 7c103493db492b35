"""Executor pods in the settings of a service: errors name what is missing, and Spark options hold no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamcore.errors import ConfigError
from streamcore.kafka.settings import KafkaSettings, SecurityProtocol
from streamcore.service.config.executors import ExecutorsDocument
from streamcore.service.config.settings import ServiceSettings
from streamcore.spark.session import _options

POD = {
    "POD_NAME": "rules-3-1",
    "POD_NAMESPACE": "shop",
    "POD_IP": "10.1.2.3",
    "HEADGATE_IMAGE": "headgate:1",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
}


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "executor.yaml"
    path.write_text("kind: Pod")
    return path


def test_a_driver_with_complete_settings_requests_its_executors_from_the_cluster(template: Path) -> None:
    executors = ExecutorsDocument(count=3, cores=2, template=template).to_executors(POD)
    options = executors.options()
    assert executors.slots == 6
    assert options["spark.master"] == "k8s://https://10.0.0.1:443"
    assert options["spark.executor.instances"] == "3"
    assert options["spark.driver.bindAddress"] == options["spark.driver.host"] == "10.1.2.3"
    assert options["spark.kubernetes.driver.pod.name"] == "rules-3-1"
    assert options["spark.kubernetes.executor.podTemplateFile"] == str(template)


def test_an_ipv6_address_of_the_api_server_is_written_in_brackets(template: Path) -> None:
    options = (
        ExecutorsDocument(count=1, template=template)
        .to_executors(POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"})
        .options()
    )
    assert options["spark.master"] == "k8s://https://[fd00::1]:443"


@pytest.mark.parametrize("missing", sorted(POD))
def test_the_error_names_each_setting_that_the_pod_lacks(template: Path, missing: str) -> None:
    known = {name: value for name, value in POD.items() if name != missing}
    with pytest.raises(ConfigError, match=missing):
        ExecutorsDocument(count=1, template=template).to_executors(known)


def test_the_error_names_a_missing_template(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        ExecutorsDocument(count=1, template=tmp_path / "nowhere.yaml").to_executors(POD)


def test_the_secret_between_driver_and_executors_is_a_file(template: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    document = ExecutorsDocument(count=1, template=template, secret_file=secret)
    with pytest.raises(ConfigError, match="mount the secret"):
        document.to_executors(POD)
    secret.write_text("hunter2")
    options = document.to_executors(POD).options()
    assert options["spark.authenticate"] == "true"
    assert options["spark.authenticate.secret.file"] == str(secret)
    assert "hunter2" not in str(options)


def test_the_spark_options_and_the_printed_settings_do_not_contain_a_password(
    template: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter2")
    for name, value in POD.items():
        monkeypatch.setenv(name, value)
    settings = ServiceSettings(
        app="rules",
        kafka=KafkaSettings(
            bootstrap="k:9092", security=SecurityProtocol.SASL_PLAINTEXT, username="u", password_file=secret
        ),
        checkpoint=tmp_path,
        executors=ExecutorsDocument(count=1, template=template),
    )
    options = _options(settings.spark_session)
    assert options["spark.master"].startswith("k8s://")
    assert "spark.local.dir" not in options
    assert "hunter2" not in f"{options}{settings!r}"
