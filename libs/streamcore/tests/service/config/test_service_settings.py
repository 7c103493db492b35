"""The settings that every service has are checked before anything starts."""

from __future__ import annotations

import pytest

from streamcore.errors import ConfigError
from streamcore.service.config.documents import checked_document
from streamcore.service.config.settings import ServiceSettings


def _settings(app: str) -> dict[str, object]:
    return {"app": app, "kafka": {"bootstrap": "localhost:9092"}, "checkpoint": "/checkpoint"}


@pytest.mark.parametrize("name", ["my_app", "App", "9th", "-app", "a" * 41, "", "app\n", "app-"])
def test_settings_reject_an_app_name_that_kafka_or_kubernetes_would_not_take(name: str) -> None:
    with pytest.raises(ConfigError, match=r"app: .*use a-z, 0-9 and -"):
        checked_document(_settings(name), ServiceSettings, "settings.yaml")


@pytest.mark.parametrize("name", ["a", "my-app-2", "a" * 40])
def test_settings_accept_an_app_name(name: str) -> None:
    assert checked_document(_settings(name), ServiceSettings, "settings.yaml").app == name
