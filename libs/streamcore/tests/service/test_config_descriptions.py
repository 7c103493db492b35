"""Every setting that the library declares is described where it is declared."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import TypeAdapter

from streamcore.kafka.settings import KafkaSettings
from streamcore.service.config import documents, executors, formats, settings, telemetry
from streamcore.service.config.base import Document
from streamcore.service.config.sinks import SinkSettings

_MODULES = (documents, executors, formats, settings, telemetry)
_MODELS: set[type[Document]] = {
    model
    for module in _MODULES
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, Document) and model is not Document
}


@pytest.mark.parametrize("model", sorted(_MODELS, key=str))
def test_every_setting_has_a_description(model: type[Document]) -> None:
    without = [name for name, field in model.model_fields.items() if not field.description]
    assert not without, "give these settings a Field(description=...)"


@pytest.mark.parametrize("settings_class", [KafkaSettings, *get_args(SinkSettings)])
def test_every_setting_of_kafka_and_of_a_sink_has_a_description(settings_class: type[object]) -> None:
    schema = TypeAdapter(settings_class).json_schema()
    parts = {settings_class.__name__: schema, **schema["$defs"]}
    fields = [(part, name, entry) for part, some in parts.items() for name, entry in some.get("properties", {}).items()]
    without = [f"{part}.{name}" for part, name, entry in fields if not entry.get("description")]
    assert fields
    assert not without, "give these settings a Field(description=...)"
