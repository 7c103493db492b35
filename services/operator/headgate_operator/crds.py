"""Generates the CRDs from the models of ``resources``: ``python -m headgate_operator.crds [FOLDER]``.

The chart contains the generated files (``charts/headgate/crds``). Kubernetes requires structural schemas: no
references, no unions, no titles. This module converts the JSON schemas of pydantic to that form, and raises
``ValueError`` for a model that cannot be converted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any  # JSON of any content

import yaml
from pydantic import TypeAdapter

from headgate_operator.resources import GROUP, VERSION, SavepointSpec, SavepointStatus, Status, StreamAppSpec
from streamcore.arguments import APP_NAME, APP_NAME_RULE
from streamcore.durations import render_duration

Schema = dict[str, Any]
#: Entries that a structural schema must not have, or does not need.
_DROPPED = {"title", "additionalProperties", "$defs", "exclusiveMinimum"}
#: The name ``savepoints`` is that of the folder beside those of the apps.
_NAME_RULE = {
    "rule": f"self.metadata.name.matches('^{APP_NAME}$') && self.metadata.name != 'savepoints'",
    "message": f"the name of an app: {APP_NAME_RULE}; and not savepoints",
}
_KEEP = {"helm.sh/resource-policy": "keep"}  # deleting a CRD deletes every app


def structural(schema: Schema, models: Mapping[str, Schema] | None = None) -> Schema:
    """Convert pydantic's JSON schema to a structural schema. ``ValueError`` for a union.

    ``models``: the schemas that references name; by default those of ``schema``.
    """
    models = schema.get("$defs", {}) if models is None else models
    schema = _resolve_reference(schema, models)
    if "anyOf" in schema:
        schema = _without_null(schema)
        return structural(schema, models) | {"nullable": True}
    result = {name: entry for name, entry in schema.items() if name not in _DROPPED}
    if "default" in result:
        result["default"] = _default(result)
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = {"description": "One value."} | structural(
            schema["additionalProperties"], models
        )
    if "properties" in schema:
        result["properties"] = {name: structural(entry, models) for name, entry in schema["properties"].items()}
    if "items" in schema:
        result["items"] = {"description": "One entry."} | structural(schema["items"], models)
    return result


def _default(schema: Schema) -> object:
    """Return the default as users write it: a duration as text, an object as ``{}``, for its entries have defaults."""
    if schema.get("type") == "object":
        return {}
    value = schema["default"]
    return render_duration(value) if schema.get("type") == "string" and isinstance(value, int) else value


def _resolve_reference(schema: Schema, models: Mapping[str, Schema]) -> Schema:
    if "$ref" not in schema:
        return schema
    others = {name: entry for name, entry in schema.items() if name != "$ref"}
    return dict(models[schema["$ref"].rsplit("/", 1)[-1]]) | others


def _without_null(schema: Schema) -> Schema:
    """Return the schema of an optional entry, without the alternative null. ``ValueError`` for any other union."""
    choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
    if len(choices) != 1:
        raise ValueError(f"a union has no structural schema: {schema['anyOf']}")
    others = {name: entry for name, entry in schema.items() if name not in ("anyOf", "default")}
    return dict(choices[0]) | others


def _column(name: str, path: str, type_: str = "string", *, wide: bool = False) -> Schema:
    """Return a column of ``kubectl get``. ``wide``: only with ``-o wide``."""
    description = {"description": f"The value of {path}."}
    return {"name": name, "type": type_, "jsonPath": path} | description | ({"priority": 1} if wide else {})


_AGE = _column("Age", ".metadata.creationTimestamp", "date")
_APP_COLUMNS = [
    _column("Phase", ".status.phase"),
    _column("Version", ".status.version"),
    _column("Batch", ".status.progress.batch", "integer"),
    _column("Lag", ".status.progress.lagSeconds", "integer"),
    _column("Ready", ".status.conditions[?(@.type=='Ready')].status", wide=True),
    _column("Reason", ".status.conditions[?(@.type=='Ready')].reason", wide=True),
    _column("Savepoint", ".status.newestSavepoint", wide=True),
    _AGE,
]
_SAVEPOINT_COLUMNS = [
    _column("App", ".spec.app"),
    _column("Phase", ".status.phase"),
    _column("Epoch", ".status.epoch", "integer"),
    _column("Batch", ".status.batch", "integer"),
    _column("Bytes", ".status.sizeBytes", "integer"),
    _column("Reason", ".spec.reason"),
    _AGE,
]


def _crd(kind: str, plural: str, short: str, spec: Schema, status: Schema, columns: list[Schema]) -> Schema:
    """Return a CRD. ``short``: the short name of the kind for ``kubectl``."""
    text = f"A {kind} of Headgate."
    spec, status = (
        part | {"description": f"{word} of the {kind}."} for part, word in ((spec, "Specification"), (status, "Status"))
    )
    schema = {
        "type": "object",
        "description": text,
        "required": ["spec"],
        "properties": {"spec": spec, "status": status},
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), "shortNames": [short]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": _KEEP},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _with_validation(crd: Schema, rule: Schema) -> Schema:
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [rule]
    return crd


def _status_schema(model: type[Status] | type[SavepointStatus]) -> Schema:
    """Return the schema of a status.

    No entry is required: the API server must accept the status of an older operator.
    """
    schema = structural(TypeAdapter(model).json_schema(by_alias=True, mode="serialization"))
    return _without_requirements(schema)


def _without_requirements(schema: Schema) -> Schema:
    """Return the schema without required entries, defaults and validation rules, at every level."""
    result = {name: entry for name, entry in schema.items() if name not in ("required", "default")}
    result.pop("x-kubernetes-validations", None)
    if "properties" in result:
        result["properties"] = {name: _without_requirements(entry) for name, entry in result["properties"].items()}
    if "items" in result:
        result["items"] = _without_requirements(result["items"])
    return result


def crds() -> dict[str, Schema]:
    """Return the CRDs by file name."""
    app = structural(StreamAppSpec.model_json_schema(by_alias=True))
    savepoint = structural(SavepointSpec.model_json_schema(by_alias=True))
    return {
        "streamapps.yaml": _with_validation(
            _crd("StreamApp", "streamapps", "sapp", app, _status_schema(Status), _APP_COLUMNS), _NAME_RULE
        ),
        "savepoints.yaml": _crd(
            "Savepoint", "savepoints", "svp", savepoint, _status_schema(SavepointStatus), _SAVEPOINT_COLUMNS
        ),
    }


def render(crd: Schema) -> str:
    """Return the CRD as YAML, as the chart contains it."""
    return yaml.safe_dump(crd, sort_keys=False, width=120)


def main(arguments: list[str]) -> None:
    """Print the CRDs, or write them into the folder in ``arguments``."""
    if not arguments:
        sys.stdout.write("---\n".join(render(crd) for crd in crds().values()))
    for name, crd in crds().items() if arguments else ():
        (Path(arguments[0]) / name).write_text(render(crd))


if __name__ == "__main__":
    main(sys.argv[1:])
