"""The schema of the chart's values agrees with the models of the settings, and rejects values that fail in a pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.servers.chart import CASES, template
from tools.chart_values import FILE, rendered, values_schema


def test_the_committed_file_equals_the_one_generated_from_the_models() -> None:
    assert FILE.read_text() == rendered(), "make chart writes it anew"


def test_every_value_has_a_description() -> None:
    schema = values_schema()
    models = [(name, entry) for name, entry in schema["$defs"].items() if "properties" in entry]
    fields = [
        (f"{model}.{name}", field)
        for model, entry in [("", schema), *models]
        for name, field in entry["properties"].items()
    ]
    assert [name for name, field in fields if not _description(field, schema)] == []


def _description(field: dict[str, Any], schema: dict[str, Any]) -> str | None:
    """Return the description of the value, or of its model."""
    if text := field.get("description"):
        return str(text)
    return str(schema["$defs"][field["$ref"].rpartition("/")[2]].get("description", "")) if "$ref" in field else None


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_schema_accepts_valid_values(case: str) -> None:
    template(CASES[case])


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"imge": {}}, "imge"),
        ({"image": {"tag": "latest"}}, "image/tag"),
        ({"image": {"digest": "sha256:abc"}}, "image/digest"),
        ({"operator": {"replicas": 0}}, "operator/replicas"),
        ({"operator": {"resources": {"limits": {"memory": "lots"}}}}, "operator/resources/limits/memory"),
        ({"kafka": {"bootstrap": "no-port"}}, "kafka/bootstrap"),
        ({"kafka": {"settings": {"password": "x"}}}, "password"),
        ({"kafka": {"topics": {"shop": 0}}}, "kafka/topics/shop"),
        ({"checkpoints": {"root": "relative"}}, "checkpoints/root"),
        ({"checkpoints": {"accessMode": "ReadOnlyMany"}}, "checkpoints/accessMode"),
        ({"appDefaults": {"image": "x:latest"}}, "appDefaults/image"),
        ({"appDefaults": {"restore": {}}}, "restore"),
        ({"apps": {"Rules": {"enabled": True, "service": "rules"}}}, "Rules"),
        ({"apps": {"other": {"enabled": True}}}, "service"),
        ({"apps": {"rules": {"executers": 2}}}, "executers"),
        ({"apps": {"rules": {"executors": -1}}}, "executors"),
        ({"apps": {"rules": {"savepoints": {"every": "often"}}}}, "savepoints/every"),
        ({"apps": {"rules": {"upgrade": {"mode": "quick"}}}}, "upgrade/mode"),
        ({"apps": {"rules": {"files": {"a/b/c": ""}}}}, "a/b/c"),
        ({"apps": {"rules": {"config": {"shard": 4}}}}, "shard"),
        ({"apps": {"rules": {"config": {"checkpoint": "/elsewhere"}}}}, "checkpoint"),
        ({"apps": {"rules": {"config": {"streams": []}}}}, "streams"),
        ({"apps": {"other": {"enabled": True, "service": "rules", "config": {}}}}, "streams"),
        ({"apps": {"etl": {"config": {"mask": {"card": {"how": "hide"}}}}}}, "mask/card/how"),
        ({"apps": {"sessions": {"config": {"stream": {"topic": 1}}}}}, "topic"),
        ({"monitoring": {"rules": {"deadLetterShare": 2}}}, "deadLetterShare"),
    ],
)
def test_invalid_values_are_rejected_with_their_path(values: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError, match=where):
        template(values)
