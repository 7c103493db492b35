"""The CRDs in the repository equal those of the models, and have structural schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate_operator import rbac
from headgate_operator.crds import crds, render, structural
from streamcore.arguments import APP_NAME, APP_NAME_RULE
from streamcore.yaml_loader import SAFE_LOADER

_CHART = Path(__file__).parents[3] / "charts/headgate"
_FILES = sorted(path.name for path in (_CHART / "crds").iterdir())


@pytest.fixture(scope="module")
def generated() -> dict[str, dict[str, Any]]:
    """The CRDs by file name, made of the models."""
    return crds()


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for entry in schema.values():
            yield from _schemas(entry)


def test_every_crd_has_a_file(generated: dict[str, dict[str, Any]]) -> None:
    assert sorted(generated) == _FILES


@pytest.mark.parametrize("name", _FILES)
def test_the_committed_file_equals_the_one_generated_from_the_models(
    name: str, generated: dict[str, dict[str, Any]]
) -> None:
    assert (_CHART / "crds" / name).read_text() == render(generated[name]), (
        f"python -m headgate_operator.crds charts/headgate/crds writes {name} anew"
    )


def test_the_roles_in_the_chart_equal_those_of_the_operator() -> None:
    assert (_CHART / "files/roles.yaml").read_text() == rbac.render()


@pytest.mark.parametrize("name", _FILES)
def test_a_crd_is_a_structural_schema(name: str) -> None:
    crd = yaml.load((_CHART / "crds" / name).read_text(), SAFE_LOADER)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in _schemas(schema):
        assert not {"$ref", "$defs", "anyOf", "allOf", "exclusiveMinimum"} & set(part)
        assert not ("properties" in part and "additionalProperties" in part)
        assert part.get("additionalProperties") is not False


@pytest.mark.parametrize("name", _FILES)
def test_every_field_has_a_description(name: str, generated: dict[str, dict[str, Any]]) -> None:
    schema = generated[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    without = [path for path, part in _fields("", schema) if not part.get("description")]
    assert not without, "give these fields a Field(description=...)"


def _fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}", part
        yield from _fields(f"{path}.{name}", part)
    if "items" in schema:
        yield from _fields(f"{path}[]", schema["items"])


def test_a_schema_with_a_union_is_rejected() -> None:
    with pytest.raises(ValueError, match="union"):
        structural({"anyOf": [{"type": "string"}, {"type": "integer"}]})


def test_the_name_of_an_app_is_that_of_the_services() -> None:
    rule = crds()["streamapps.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"][0]
    assert f"self.metadata.name.matches('^{APP_NAME}$')" in rule["rule"]
    assert APP_NAME_RULE in rule["message"]
    names = json.loads((_CHART / "values.schema.json").read_text())["properties"]["apps"]["propertyNames"]
    assert names == {"pattern": f"^{APP_NAME}$"}
