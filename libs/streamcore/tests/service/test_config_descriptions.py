"""Every setting that the library declares is described where it is declared."""

from __future__ import annotations

import pytest

from streamcore.service.config import delta, documents, executors, formats, opensearch, postgres, settings, telemetry
from streamcore.service.config.base import Document

_MODULES = (delta, documents, executors, formats, opensearch, postgres, settings, telemetry)
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
