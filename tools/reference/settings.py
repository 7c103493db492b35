"""The page of the settings, from the models of the services' settings documents (``headgate schema settings``).

A document that several settings have, such as a stream or a PostgreSQL sink, gets a section of its own; every other
one is spread out with its full YAML path. The settings and limits of programs follow (``program_settings``).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.commands.schema import SERVICES, document_schema
from streamcore.service.config.settings import ServiceSettings
from tools.reference import program_settings
from tools.reference.markdown import anchor, code, head, plain, section, table

Schema = Mapping[str, Any]
_COLUMNS = ("setting", "type", "default", "bounds", "description")
_BOUNDS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "minProperties": "at least {}",
    "pattern": "`{}`",
}
_INTRODUCTION = (
    "A service reads its settings from the YAML or JSON file of `--settings`. The path `inputs[].topic` names the "
    "entry `topic` of each item of the list `inputs`, and `tables.*.key` the entry `key` of each value of the mapping "
    "`tables`. A setting with the default *required* must be in the file."
)
_ENVIRONMENT = (
    "No setting has a form in the environment. A setting whose name ends in `_env` names the variable that holds a "
    "secret, so the secret itself is in no file of settings."
)
_OVERRIDES = "A service that declares one of these with another default lists it again."


class _Settings:
    """The schemas of all services, with every document under its name."""

    def __init__(self) -> None:
        self.common = ServiceSettings.model_json_schema()
        self.services = {name: document_schema("settings", name) for name in SERVICES}
        self.documents: dict[str, Schema] = {}
        for schema in (self.common, *self.services.values()):
            self.documents |= schema.get("$defs", {})
        self.shared = self._shared()

    def own(self, service: str) -> Schema:
        """Return the schema of a service without the settings that all services have."""
        schema, common = self.services[service], self.common["properties"]
        entries = {name: entry for name, entry in schema["properties"].items() if common.get(name) != entry}
        return {**schema, "properties": entries}

    def rows(self, schema: Schema, prefix: str = "") -> Iterator[tuple[str, ...]]:
        """Yield a row for each setting of a document and of the documents within it."""
        required = schema.get("required", ())
        for name, entry in schema["properties"].items():
            path = f"{prefix}{name}"
            default = "*required*" if name in required else _default(entry)
            yield (code(path), self.kind(entry), default, self.bounds(entry), self.description(path, entry))
            for document, place in self._within(entry, path):
                if document not in self.shared:
                    yield from self.rows(self.documents[document], f"{place}.")

    def kind(self, entry: Schema) -> str:
        """Return the type of a setting in words."""
        if options := entry.get("anyOf") or entry.get("oneOf"):
            return " or ".join(self.kind(option) for option in options)
        if reference := entry.get("$ref"):
            return self._kind_of_document(_name(reference))
        if choices := entry.get("enum") or ([entry["const"]] if "const" in entry else None):
            return ", ".join(code(str(choice)) for choice in choices)
        match entry.get("type"):
            case "array":
                return f"list of {self.kind(entry['items'])}"
            case "object":
                values = _values(entry)
                return f"mapping to {self.kind(values)}" if values else "mapping"
            case "string" if "format" in entry:
                return str(entry["format"])
            case None:
                return "any value"
            case kind:
                return str(kind)

    def bounds(self, entry: Schema) -> str:
        """Return the bounds of a setting, and of the values in it."""
        parts = [text.format(entry[name]) for name, text in _BOUNDS.items() if name in entry]
        parts += [self.bounds(option) for option in entry.get("anyOf", ())]
        parts += [f"names {code(pattern)}" for pattern in entry.get("patternProperties", ())]
        parts += [
            f"each {inner}" for one in (entry.get("items"), _values(entry)) if one and (inner := self.bounds(one))
        ]
        return ", ".join(filter(None, parts))

    def description(self, path: str, entry: Schema) -> str:
        """Return the description of a setting; pydantic leaves it out where that of the document is the same."""
        of_document = self.documents[_name(entry["$ref"])].get("description") if "$ref" in entry else None
        if text := entry.get("description", of_document):
            return plain(text)
        raise ValueError(f"the setting {path} has no description: write one where its model declares it")

    def _kind_of_document(self, name: str) -> str:
        document = self.documents[name]
        if "properties" not in document:
            return self.kind(document)
        return f"[{title(name)}](#{anchor(title(name))})" if name in self.shared else "mapping"

    def _within(self, entry: Schema, path: str) -> Iterator[tuple[str, str]]:
        """Yield the documents in a setting, each with its path."""
        if (reference := entry.get("$ref")) and "properties" in self.documents[_name(reference)]:
            yield _name(reference), path
        for option in (*entry.get("anyOf", ()), *entry.get("oneOf", ())):
            yield from self._within(option, path)
        if items := entry.get("items"):
            yield from self._within(items, f"{path}[]")
        if values := _values(entry):
            yield from self._within(values, f"{path}.*")

    def _shared(self) -> frozenset[str]:
        """Return the documents that several settings have, and those that a setting can choose from."""
        uses: Counter[str] = Counter()
        places = [self.common, *map(self.own, self.services), *self.documents.values()]
        for entry in (entry for place in places for entry in place.get("properties", {}).values()):
            found = [document for document, _ in self._within(entry, "")]
            uses.update(found if len(found) == 1 else dict.fromkeys(found, 2))
        return frozenset(document for document, count in uses.items() if count > 1)


def page() -> str:
    """Return the page."""
    settings = _Settings()
    lines = head("Settings of services and programs", _INTRODUCTION, _ENVIRONMENT)
    lines += [*section("Every service", _OVERRIDES), *table(_COLUMNS, settings.rows(settings.common))]
    for service in settings.services:
        own = settings.own(service)
        lines += section(f"The {service} service", "These settings are in addition to those of every service.")
        lines += table(_COLUMNS, settings.rows(own))
    for document in sorted(settings.shared):
        schema = settings.documents[document]
        lines += [*section(title(document), plain(schema["description"])), *table(_COLUMNS, settings.rows(schema))]
    lines += program_settings.sections()
    return "\n".join(lines)


def title(document: str) -> str:
    """Return the heading of a document: its name in words."""
    words = re.sub("(Document|Settings|Spec)$", "", document)
    return "".join(f" {char.lower()}" if char.isupper() else char for char in words).strip().capitalize()


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def _values(entry: Schema) -> Schema | None:
    """Return the schema of the values of a mapping, None where it has no such schema."""
    of = next(iter(entry.get("patternProperties", {}).values()), entry.get("additionalProperties"))
    return of if isinstance(of, dict) else None


def _default(entry: Schema) -> str:
    default = entry.get("default", {})
    if isinstance(default, dict):  # the settings within have defaults of their own
        return ""
    return code(default if isinstance(default, str) and default else json.dumps(default))
