"""The chart's values as models: ``python -m tools.chart_values`` writes the chart's ``values.schema.json``.

Apps have the operator's model of a ``StreamApp`` and the services' models of their settings, without what the chart or
the operator adds to them: so Helm rejects values that would only fail in a pod. Descriptions are those of the models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal  # a JSON schema is made of anything

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from headgate.web.access.settings import AccessSettings
from headgate_etl.settings import EtlSettings
from headgate_operator.resources import StreamAppSpec
from headgate_operator.resources.base import FreeObject
from headgate_operator.resources.spec import FILE_NAME, PROGRAM, Name, NameOrNone
from headgate_rules.settings import RulesSettings
from headgate_search.settings import SearchSettings
from headgate_sessions.settings import SessionsSettings
from streamcore.arguments import APP_NAME
from streamcore.kafka.settings import KafkaSettings
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.program.settings import ProgramSettings

FILE = Path(__file__).parents[1] / "charts/headgate/values.schema.json"
Schema = dict[str, Any]
SERVICES: Mapping[str, type[ServiceSettings]] = {
    "etl": EtlSettings,
    "program": ProgramSettings,
    "rules": RulesSettings,
    "search": SearchSettings,
    "sessions": SessionsSettings,
}
#: Addresses and counts, which the operator sets, whatever a config has.
_OPERATORS = ("checkpoint", "parallelism", "executors", "local_dir", "jars", "savepoints")
_DROPPED = {"title", "default"}

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
    repository: Repository = Field(description="Name of the image, with its registry.")
    tag: Tag = Field(description="Tag of the image; empty for the chart's version. `latest` is rejected.")
    digest: Digest = Field(description="Digest of the image, such as sha256:...; it replaces the tag.")


class Image(OwnImage):
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(description="When nodes pull the image.")
    pull_secrets: list[Name] = Field(description="Names of Secrets with logins of the registry.")


class Resources(_Values):
    requests: dict[str, Quantity] = Field(
        default={}, description="Resources that the container is guaranteed, such as cpu and memory."
    )
    limits: dict[str, Quantity] = Field(default={}, description="Resources that the container may use at most.")


class Operator(_Values):
    enabled: bool = Field(description="Whether the operator is installed.")
    all_namespaces: bool = Field(
        description="Whether it watches all namespaces, with a ClusterRole; otherwise that of the release, with a Role."
    )
    replicas: Count = Field(description="Number of operator pods; one works, the others wait.")
    workers: Count = Field(description="Number of apps that are reconciled side by side.")
    otlp_endpoint: Annotated[str, Field(pattern=r"^(https?://[^\s/:]+(:[0-9]+)?(/[^\s]*)?)?$")] = Field(
        description="Endpoint for a trace of every upgrade, by OTLP over HTTP; empty for none."
    )
    resources: Resources = Field(description="Resources of the operator.")
    node_selector: Text = Field(description="Labels of the nodes that the operator may run on.")
    tolerations: list[FreeObject] = Field(description="Taints of nodes that the operator tolerates.")
    priority_class_name: str = Field(description="Priority class of the operator; empty for the default.")
    pod_annotations: Text = Field(description="Further annotations of the operator's pods.")


class Crds(_Values):
    upgrade: bool = Field(
        description="Whether a Job replaces the CRDs with those of the image before each install and upgrade."
    )


class Uninstall(_Values):
    delete_apps: bool = Field(
        description="Whether a Job deletes the apps of the release before an uninstall, each by its deletionPolicy."
    )
    within: Seconds = Field(description="Seconds for the deletion of all apps.")


class KafkaStorage(_Values):
    size: Quantity = Field(description="Size of the volume.")
    storage_class_name: str = Field(description="Storage class of the volume; empty for the cluster's default.")


class Kafka(_Values):
    enabled: bool = Field(description="Whether a Kafka with one node is installed, without replicas and passwords.")
    bootstrap: Annotated[str, Field(pattern=r"^([^\s:,]+:[0-9]+(,[^\s:,]+:[0-9]+)*)?$")] = Field(
        description="Addresses of another Kafka, host:port, separated by commas; needed when enabled is false."
    )
    settings: KafkaSettings = Field(description="Settings of Kafka for every app and the toolbox, as `config.kafka`.")
    image: OwnImage = Field(description="Image of the Kafka node.")
    topics: dict[str, Annotated[int, Field(ge=1, le=1_000)]] = Field(
        description="Partitions of each event topic that is created, by its name."
    )
    storage: KafkaStorage = Field(description="Volume of the Kafka node.")
    resources: Resources = Field(description="Resources of the Kafka node.")


class Checkpoints(_Values):
    root: Annotated[str, Field(pattern=r"^(/[^\s]+|s3://[^\s]+)$")] = Field(
        description="Folder of checkpoints and savepoints in every pod, or s3://bucket/prefix, which needs no volume."
    )
    claim: NameOrNone = Field(description="Name of an existing claim; empty for one that the chart creates.")
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"] = Field(
        description="Access mode of the claim; pods on several nodes need ReadWriteMany."
    )
    storage_class_name: str = Field(description="Storage class of the claim; empty for the cluster's default.")
    size: Quantity = Field(description="Size of the claim.")


class Toolbox(_Values):
    enabled: bool = Field(description="Whether a pod with the command `headgate` is installed.")
    resources: Resources = Field(description="Resources of the toolbox.")


class ConsoleIngress(_Values):
    enabled: bool = Field(description="Whether an Ingress for the host of `access.public_address` is installed.")
    class_name: str = Field(description="Class of the Ingress; empty for the cluster's default.")
    annotations: Text = Field(description="Annotations of the Ingress.")
    tls_secret: NameOrNone = Field(description="Name of a Secret with the certificate; empty for none.")


class Console(_Values):
    enabled: bool = Field(description="Whether the console of the rules apps is installed.")
    access: AccessSettings | None = Field(default=None, description="Who may what; needed when enabled is true.")
    secret: NameOrNone = Field(description="Name of a Secret with its files, in /etc/headgate/console-secret.")
    signing_key: Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+)?$")] = Field(
        description="Key of that Secret with which the console signs; empty for none."
    )
    files: Text = Field(description="Stream files by name, in place of the shipped ones.")
    ingress: ConsoleIngress = Field(description="Way in from outside.")
    from_: list[FreeObject] = Field(alias="from", description="Peers that may reach it; empty for all.")
    resources: Resources = Field(description="Resources of the console.")


class Test(_Values):
    wait: Seconds = Field(description="Seconds that `helm test` waits for each step.")


class NetworkPolicy(_Values):
    enabled: bool = Field(description="Whether network policies are installed.")
    metrics_from: list[FreeObject] = Field(description="Peers that may read metrics; empty for all.")
    kafka_from: list[FreeObject] = Field(
        description="Peers that may reach the Kafka node; empty for the release's namespace."
    )
    api_server_ports: list[Port] = Field(description="Ports of the API server that pods may reach.")


class PodMonitor(_Values):
    enabled: bool = Field(description="Whether a PodMonitor for the Prometheus operator is installed.")
    interval: Annotated[str, Field(pattern=r"^[0-9]+(ms|s|m)$")] = Field(
        description="Time between two scrapes, such as 15s."
    )
    labels: Text = Field(description="Labels that Prometheus selects PodMonitors by.")


class Rules(_Values):
    enabled: bool = Field(description="Whether alerting rules for the Prometheus operator are installed.")
    labels: Text = Field(description="Labels that Prometheus selects rules by.")
    lag_seconds: Seconds = Field(
        description="Age of the oldest unread record, in seconds, from which on an alert fires."
    )
    no_batch_seconds: Seconds = Field(description="Seconds without a batch after which an alert fires.")
    dead_letter_share: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Share of dead letters among events, from 0 to 1, above which an alert fires."
    )
    restarts_per_hour: Annotated[int, Field(ge=0)] = Field(
        description="Restarts in an hour above which an alert fires."
    )
    memory_share: Annotated[float, Field(gt=0, le=1)] = Field(
        description="Share of the driver's memory limit, from 0 to 1, above which an alert fires."
    )
    clock_ahead_seconds: Seconds = Field(
        description="Seconds by which the last batch may be ahead of the node's clock before an alert fires."
    )
    savepoint_age_seconds: Seconds = Field(
        description="Age of the newest savepoint, in seconds, from which on an alert fires."
    )
    watermark_delay_seconds: Seconds = Field(
        description="Seconds by which the watermark may be behind the clock before an alert fires."
    )


class Dashboard(_Values):
    enabled: bool = Field(description="Whether a ConfigMap with a Grafana dashboard is installed.")
    labels: Text = Field(description="Labels that Grafana's sidecar selects dashboards by.")


class Monitoring(_Values):
    pod_monitor: PodMonitor = Field(description="Scraping of metrics.")
    rules: Rules = Field(description="Alerting rules and their limits.")
    dashboard: Dashboard = Field(description="Dashboard.")


#: ``apps`` and ``app_defaults`` are replaced below by what the models of apps give.
class Values(_Values):
    """Values of the chart."""

    image: Image = Field(description="Image of services, operator and command.")
    name_override: str = Field(description="Name of the chart in the names of objects; empty for headgate.")
    fullname_override: str = Field(description="Prefix of the names of objects; empty for release and chart.")
    operator: Operator = Field(description="Operator that runs the apps.")
    crds: Crds = Field(description="Custom resource definitions.")
    uninstall: Uninstall = Field(description="Deletion of the apps before an uninstall.")
    kafka: Kafka = Field(description="Kafka of the apps.")
    checkpoints: Checkpoints = Field(description="Storage of checkpoints and savepoints of all apps.")
    app_defaults: FreeObject = Field(
        description="Fields of a StreamApp's spec that every app has, unless it has its own."
    )
    apps: FreeObject = Field(description="Apps by name; an app with the name of a service is of that service.")
    toolbox: Toolbox = Field(description="Pod with the command `headgate`.")
    console: Console = Field(description="Console of the rules apps, in a browser and for programs.")
    test: Test = Field(description="`helm test`: a probe of each rules app.")
    network_policy: NetworkPolicy = Field(description="Network policies.")
    monitoring: Monitoring = Field(description="Metrics, alerts and dashboard for Prometheus and Grafana.")


def values_schema() -> Schema:
    """JSON schema, draft 2020-12."""
    schema = Values.model_json_schema(by_alias=True)
    parts: Schema = dict(schema.pop("$defs"))
    for name, settings in SERVICES.items():
        _take_out(_config(settings), f"{name}-config", parts)
    _take_out(_app(), "app", parts)
    parts["KafkaSettings"].pop("required")  # the chart sets the address
    apps, described = {"appDefaults": _defaults(parts["app"]), "apps": _apps()}, schema["properties"]
    schema["properties"] |= {
        name: entry | {"description": described[name]["description"]} for name, entry in apps.items()
    }
    schema["properties"]["global"] = {
        "type": "object",
        "description": "Values that Helm shares between charts; unused.",
    }
    schema["properties"]["apps"]["propertyNames"] = {"pattern": f"^{APP_NAME}$"}
    return _plain(schema | {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": parts})


def _config(settings: type[ServiceSettings]) -> Schema:
    schema = settings.model_json_schema(by_alias=True)
    for name in _OPERATORS:
        del schema["properties"][name]
    schema["required"] = [name for name in schema["required"] if name not in ("app", "kafka", *_OPERATORS)]
    if settings is ProgramSettings:  # whose program may have settings of its own
        schema["additionalProperties"] = True
    return schema


def _app() -> Schema:
    """A ``StreamApp``'s spec without what must be in it, and the settings of the service that it names."""
    schema = StreamAppSpec.model_json_schema(by_alias=True)
    del schema["required"], schema["$defs"]["CheckpointSpec"]["required"]
    schema["properties"]["enabled"] = {"type": "boolean", "description": "Whether the app is installed."}
    schema["properties"]["image"]["not"] = {"pattern": ":latest$"}
    schema["properties"]["files"]["propertyNames"] = {"pattern": FILE_NAME, "maxLength": 120}
    schema["allOf"] = [
        {"if": {"properties": {"service": {"const": name}}, "required": ["service"]}, "then": _with_config(name)}
        for name in SERVICES
    ]
    is_program = {"properties": {"service": {"const": PROGRAM}}, "required": ["service"]}
    schema["allOf"].append({"if": is_program, "then": {"required": ["module"]}})
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
    """Settings that several apps may share."""
    own = ("enabled", "service", "restore")
    entries = {name: entry for name, entry in app["properties"].items() if name not in own}
    return {"type": "object", "additionalProperties": False, "properties": entries}


def _take_out(schema: Schema, name: str, parts: Schema) -> None:
    """It and its own ``$defs`` into ``parts``; two of one name must be one."""
    for part, entry in (schema.pop("$defs", {}) | {name: schema}).items():
        if parts.setdefault(part, entry) != entry:
            raise ValueError(f"two models are named {part}, or hold two of one name: name each class of settings once")


def _plain(schema: Schema) -> Schema:
    return {name: _plain_entry(name, entry) for name, entry in _kept(schema)}


def _kept(schema: Schema) -> Iterator[tuple[str, Any]]:
    for name, entry in schema.items():
        if name.startswith("x-kubernetes") or (name in _DROPPED and not isinstance(entry, dict)):
            continue
        yield name, _sentence(entry) if name == "description" and isinstance(entry, str) else entry


def _plain_entry(name: str, entry: Any) -> Any:
    if isinstance(entry, dict) and name == "properties":  # here names are the user's
        return {key: _plain_entry("", one) for key, one in entry.items()}
    if isinstance(entry, dict):
        return _plain(entry)
    if isinstance(entry, list):
        return [_plain(one) if isinstance(one, dict) else one for one in entry]
    return entry


def _sentence(docstring: str) -> str:
    """Its first paragraph on one line, for people who write YAML."""
    return " ".join(docstring.partition("\n\n")[0].replace("``", "`").split())


def rendered() -> str:
    """As the file in the repository."""
    return json.dumps(values_schema(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.exit(FILE.write_text(rendered()) <= 0)
