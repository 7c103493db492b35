"""``headgate schema``: the JSON Schema of a document, with which an editor completes and checks YAML."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from headgate.errors import InputError
from headgate.programs import service_app
from streamcore.schema import Envelope, TimeUnit
from streamcore.schema.types import NAME_PATTERN

if TYPE_CHECKING:
    from streamcore.service.config.settings import ServiceSettings

#: The services with a settings document; ``program`` stands for the settings that every program has.
SERVICES: Final = (*service_app.SERVICES, "program")
_TYPE: Final = r"^ *(boolean|long|double|string|timestamp|decimal\([0-9]+, *[0-9]+\))( not null)? *$"


@click.command(name="schema")
@click.argument("document", type=click.Choice(["rule", "decision-policy", "feature", "list", "stream", "settings"]))
@click.option(
    "--service",
    metavar="SERVICE",
    default=None,
    help=f"Whose settings (for `settings`): {', '.join(SERVICES)}, or a program as MODULE:TOPOLOGY.",
)
def command(document: str, service: str | None) -> None:
    """Print the JSON Schema (draft 2020-12) of a document.

    With yaml-language-server, an editor reads it from the first line of the document:
    # yaml-language-server: $schema=rule.schema.json
    """
    if (document == "settings") is (service is None):
        raise click.UsageError("--service names the service of `settings`, and belongs to no other document")
    click.echo(json.dumps(document_schema(document, service), indent=2))


def document_schema(document: str, service: str | None = None) -> Mapping[str, Any]:
    """Return the JSON Schema of a kind of document; ``service`` names the service of ``settings``."""
    from rulecore.documents.json_schema import DRAFT, feature_json_schema, policy_json_schema, rule_json_schema
    from rulecore.lists.json_schema import list_json_schema

    match document:
        case "rule":
            return rule_json_schema()
        case "decision-policy":
            return policy_json_schema()
        case "feature":
            return feature_json_schema()
        case "list":
            return list_json_schema()
        case "stream":
            return {"$schema": DRAFT, **_STREAM}
    assert service is not None, "checked by the command"
    schema: dict[str, Any] = _settings_model(service).model_json_schema(mode="validation")
    return {"$schema": DRAFT, **schema, "title": f"Settings of the Headgate {service} service"}


def _settings_model(service: str) -> type[ServiceSettings]:
    if service_app.is_program(service):
        from streamcore.service.program.definition import program_service

        return program_service(service).settings
    if service not in SERVICES:
        raise InputError(f"there is no service {service}; there are {', '.join(SERVICES)}")
    module = "streamcore.service.program" if service == "program" else f"headgate_{service}"
    model: type[ServiceSettings] = getattr(importlib.import_module(f"{module}.settings"), f"{service.title()}Settings")
    return model


_NAME: Final = {"type": "string", "pattern": "^[a-z_][a-z0-9_]{0,62}$"}
_FIELD_NAME: Final = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
_FIELD_TYPE: Final = {"type": "string", "pattern": _TYPE}
_VALUE: Final = {"type": ["string", "integer", "boolean"]}
_STREAM: Final[Mapping[str, Any]] = {
    "title": "Headgate stream",
    "type": "object",
    "required": ["name", "fields", "event_time", "keys"],
    "additionalProperties": False,
    "properties": {
        "name": {**_NAME, "description": "Name of the stream; rules refer to it with `on`."},
        "fields": {
            "type": "object",
            "description": "Type of each field, such as `string not null` or `decimal(12,2)`.",
            "propertyNames": _FIELD_NAME,
            "additionalProperties": {
                "anyOf": [
                    _FIELD_TYPE,
                    {
                        "type": "object",
                        "required": ["type"],
                        "additionalProperties": False,
                        "properties": {
                            "type": _FIELD_TYPE,
                            "from": {
                                "type": "string",
                                "description": "Path in a record, such as `customer.id`; by default the field's name.",
                            },
                            "unit": {
                                "enum": [*TimeUnit],
                                "description": "Unit of a timestamp that is a number since 1970; by default ms.",
                            },
                            "pattern": {
                                "type": "string",
                                "description": "Pattern of a timestamp that is a text, such as `MM/dd/yyyy hh:mm:ss a`"
                                "; by default ISO 8601.",
                            },
                        },
                    },
                ]
            },
            "minProperties": 1,
        },
        "event_time": {
            "description": "Timestamp field that holds the event time, perhaps with that of the record as fallback.",
            "anyOf": [
                _FIELD_NAME,
                {
                    "type": "object",
                    "required": ["field", "fallback"],
                    "additionalProperties": False,
                    "properties": {"field": _FIELD_NAME, "fallback": {"enum": ["kafka"]}},
                },
            ],
        },
        "keys": {
            "type": "array",
            "description": "Keys that events are routed by, each a field or a list of fields.",
            "items": {"anyOf": [_FIELD_NAME, {"type": "array", "items": _FIELD_NAME, "minItems": 1}]},
            "minItems": 1,
        },
        "event_id": {"anyOf": [_FIELD_NAME, {"type": "null"}], "description": "Field that identifies an event."},
        "envelope": {"enum": [*Envelope], "description": "What the records have around the events."},
        "when": {
            "type": "object",
            "description": "Which records of the topic are events of the stream.",
            "required": ["from", "equals"],
            "additionalProperties": False,
            "properties": {
                "from": {"type": "string", "description": "Path in a record, such as `type` or `_kafka.headers.kind`."},
                "equals": {
                    "description": "The value there, or several of one type.",
                    "anyOf": [_VALUE, {"type": "array", "items": _VALUE, "minItems": 1}],
                },
            },
        },
        "deduplicate": {
            "type": "string",
            "pattern": "^[0-9]{1,12}(ms|s|m|h|d)$",
            "description": "Most event time between two events with one event_id for the second to be a duplicate, "
            "which is not used; without it each event is used.",
        },
        "zone": {"type": "string", "description": "Time zone of times without one, such as Europe/London."},
        "version": {
            "type": "integer",
            "minimum": 1,
            "description": "Version of the document, raised with each change; 1 without it.",
        },
    },
}
