"""What may be said to the chart, as models: ``python -m tools.chart_values`` writes the chart's ``values.schema.json``.

Apps are described by the operator's own model of a ``StreamApp`` and the services' own models of their settings, with
nothing required that the chart or the operator says: so Helm refuses what would only fail in a pod.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal  # a JSON schema is made of anything

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from headgate_etl.settings import EtlSettings
from headgate_operator.crds import APP_NAME
from headgate_operator.resources import StreamAppSpec
from headgate_operator.resources.base import FreeObject
from headgate_operator.resources.spec import FILE_NAME, Name, NameOrNone
from headgate_rules.settings import RulesSettings
from headgate_search.settings import SearchSettings
from headgate_sessions.settings import SessionsSettings
from streamcore.service.config.documents import KafkaDocument
from streamcore.service.config.settings import ServiceSettings

FILE = Path(__file__).parents[1] / "charts/headgate/values.schema.json"
Schema = dict[str, Any]
SERVICES: Mapping[str, type[ServiceSettings]] = {
    "etl": EtlSettings,
    "rules": RulesSettings,
    "search": SearchSettings,
    "sessions": SessionsSettings,
}
#: Where things are, and how many: the operator's to say, whatever a config says.
_OPERATORS = ("checkpoint", "parallelism", "executors", "local_dir", "jars", "savepoints")
_DROPPED = {"title", "description", "default"}

Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")]
#: Not ``latest``: two pods of one app would run two programs, and no roll-back would go back.
_NOT_LATEST: dict[str, JsonValue] = {"not": {"const": "latest"}}
Tag = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$", json_schema_extra=_NOT_LATEST)]
Digest = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]
Repository = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._/:-]*$")]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Text = dict[str, str]


class _Values(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class OwnImage(_Values):
    repository: Repository
    tag: Tag
    digest: Digest


class Image(OwnImage):
    pull_policy: Literal["Always", "IfNotPresent", "Never"]
    pull_secrets: list[Name]


class Resources(_Values):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class Operator(_Values):
    enabled: bool
    all_namespaces: bool
    replicas: Count
    workers: Count
    otlp_endpoint: Annotated[str, Field(pattern=r"^(https?://[^\s/:]+(:[0-9]+)?(/[^\s]*)?)?$")]
    resources: Resources
    node_selector: Text
    tolerations: list[FreeObject]
    priority_class_name: str
    pod_annotations: Text


class Crds(_Values):
    upgrade: bool


class Uninstall(_Values):
    delete_apps: bool
    within: Seconds


class KafkaStorage(_Values):
    size: Quantity
    storage_class_name: str


class Kafka(_Values):
    enabled: bool
    bootstrap: Annotated[str, Field(pattern=r"^([^\s:,]+:[0-9]+(,[^\s:,]+:[0-9]+)*)?$")]
    settings: KafkaDocument
    image: OwnImage
    topics: dict[str, Annotated[int, Field(ge=1, le=1_000)]]
    storage: KafkaStorage
    resources: Resources


class Checkpoints(_Values):
    root: Annotated[str, Field(pattern=r"^(/[^\s]+|s3://[^\s]+)$")]
    claim: NameOrNone
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
    storage_class_name: str
    size: Quantity


class Toolbox(_Values):
    enabled: bool
    resources: Resources


class Test(_Values):
    wait: Seconds


class NetworkPolicy(_Values):
    enabled: bool
    metrics_from: list[FreeObject]
    kafka_from: list[FreeObject]
    api_server_ports: list[Port]


class PodMonitor(_Values):
    enabled: bool
    interval: Annotated[str, Field(pattern=r"^[0-9]+(ms|s|m)$")]
    labels: Text


class Rules(_Values):
    enabled: bool
    labels: Text
    lag_seconds: Seconds
    no_batch_seconds: Seconds
    dead_letter_share: Annotated[float, Field(ge=0, le=1)]
    restarts_per_hour: Annotated[int, Field(ge=0)]
    savepoint_age_seconds: Seconds
    watermark_delay_seconds: Seconds


class Dashboard(_Values):
    enabled: bool
    labels: Text


class Monitoring(_Values):
    pod_monitor: PodMonitor
    rules: Rules
    dashboard: Dashboard


class Values(_Values):
    """All of ``values.yaml``. ``apps`` and ``app_defaults`` are put together below."""

    image: Image
    name_override: str
    fullname_override: str
    operator: Operator
    crds: Crds
    uninstall: Uninstall
    kafka: Kafka
    checkpoints: Checkpoints
    app_defaults: FreeObject
    apps: FreeObject
    toolbox: Toolbox
    test: Test
    network_policy: NetworkPolicy
    monitoring: Monitoring


def values_schema() -> Schema:
    """JSON schema, draft 2020-12."""
    schema = Values.model_json_schema(by_alias=True)
    parts: Schema = dict(schema.pop("$defs"))
    for name, settings in SERVICES.items():
        _take_out(_config(settings), f"{name}-config", parts)
    _take_out(_app(), "app", parts)
    parts["KafkaDocument"].pop("required")  # the chart says where it is
    schema["properties"] |= {"global": {"type": "object"}, "appDefaults": _defaults(parts["app"]), "apps": _apps()}
    schema["properties"]["apps"]["propertyNames"] = {"pattern": APP_NAME}
    return _plain(schema | {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": parts})


def _config(settings: type[ServiceSettings]) -> Schema:
    schema = settings.model_json_schema(by_alias=True)
    for name in _OPERATORS:
        del schema["properties"][name]
    schema["required"] = [name for name in schema["required"] if name not in ("app", "kafka", *_OPERATORS)]
    return schema


def _app() -> Schema:
    """A ``StreamApp``'s spec without what must be in it, and the settings of the service that it names."""
    schema = StreamAppSpec.model_json_schema(by_alias=True)
    del schema["required"], schema["$defs"]["CheckpointSpec"]["required"]
    schema["properties"]["enabled"] = {"type": "boolean"}
    schema["properties"]["image"]["not"] = {"pattern": ":latest$"}
    schema["properties"]["files"]["propertyNames"] = {"pattern": FILE_NAME, "maxLength": 120}
    schema["allOf"] = [
        {"if": {"properties": {"service": {"const": name}}, "required": ["service"]}, "then": _with_config(name)}
        for name in SERVICES
    ]
    return schema


def _with_config(service: str) -> Schema:
    return {"properties": {"config": {"$ref": f"#/$defs/{service}-config"}}}


def _apps() -> Schema:
    """By name; an app that is named as a service is of that service."""
    app: Schema = {"$ref": "#/$defs/app"}
    named = {
        name: {"allOf": [app, {"if": {"not": {"required": ["service"]}}, "then": _with_config(name)}]}
        for name in SERVICES
    }
    on = {"properties": {"enabled": {"const": True}}, "required": ["enabled"]}
    other = {"allOf": [app, {"if": on, "then": {"required": ["service"]}}]}
    return {"type": "object", "properties": named, "additionalProperties": other}


def _defaults(app: Schema) -> Schema:
    """What several apps may share."""
    own = ("enabled", "service", "restore")
    entries = {name: entry for name, entry in app["properties"].items() if name not in own}
    return {"type": "object", "additionalProperties": False, "properties": entries}


def _take_out(schema: Schema, name: str, parts: Schema) -> None:
    """It and its own ``$defs`` into ``parts``; two of one name must be one."""
    for part, entry in (schema.pop("$defs", {}) | {name: schema}).items():
        if parts.setdefault(part, entry) != entry:
            raise ValueError(f"two models are named {part}: rename one")


def _plain(schema: Schema) -> Schema:
    return {name: _plain_entry(name, entry) for name, entry in _kept(schema)}


def _kept(schema: Schema) -> Iterator[tuple[str, Any]]:
    for name, entry in schema.items():
        if name.startswith("x-kubernetes") or (name in _DROPPED and not isinstance(entry, dict)):
            continue
        yield name, entry


def _plain_entry(name: str, entry: Any) -> Any:
    if isinstance(entry, dict) and name == "properties":  # here names are the user's
        return {key: _plain_entry("", one) for key, one in entry.items()}
    if isinstance(entry, dict):
        return _plain(entry)
    if isinstance(entry, list):
        return [_plain(one) if isinstance(one, dict) else one for one in entry]
    return entry


def rendered() -> str:
    """As the file in the repository."""
    return json.dumps(values_schema(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(FILE.write_text(rendered()) <= 0)
