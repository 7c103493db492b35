"""Writes the first documents for a sample of records: the stream file, and a settings document that reads it.

They are a start: every field becomes a column under its name, in the table of a local PostgreSQL or in a topic. The
stream file is that of ``headgate streams infer``; if records have no event time it is the time of Kafka. Promises: the
documents have no mistakes (``headgate etl check``), and no file is overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import yaml

from headgate.errors import InputError
from headgate.local.servers.base import HOST
from headgate.local.servers.kafka import DEFAULT_PORT as KAFKA_PORT
from headgate.local.servers.postgres import DEFAULT_PORT as POSTGRES_PORT
from headgate.local.servers.postgres_files import DATABASE, USER
from headgate.streams.csv_sample import is_csv, read_csv
from headgate.streams.inference import infer
from headgate.streams.observed_fields import observe
from headgate.streams.sample import read_files, stream_name
from rulecore.language.parsing.lexemes import KEYWORDS
from streamcore.schema import Field, Kind, StreamSchema
from streamcore.schema.types import quote_name
from streamcore.yaml_loader import SAFE_LOADER

_LIMIT: Final = 10_000
_NESTED: Final = (Kind.ARRAY, Kind.STRUCT, Kind.MAP)
#: What identifies a record that has no id: its place in Kafka.
_PLACE: Final = {
    "kafka_partition": "{type: long not null, from: _kafka.partition}",
    "kafka_offset": "{type: long not null, from: _kafka.offset}",
}
#: Most characters of an app's name.
_MAX_NAME: Final = 40
#: Most fields of which a session gets columns.
_MOST_COLUMNS: Final = 5


@dataclass(frozen=True, slots=True)
class FirstDocument:
    """``files``: the text of the stream file and of the settings, by their paths. ``records``: of the sample."""

    files: Mapping[Path, str]
    records: int
    schema: StreamSchema


def write_first_document(
    service: str, samples: Sequence[Path], folder: Path, name: str | None, user: str | None, *, to_postgres: bool
) -> FirstDocument:
    """Write the documents of a service for a sample into a folder. ``InputError`` if the sample cannot be read, if a
    file is there already, or if the sessions app finds no user."""
    found = _draft(service, samples, folder, name, user, to_postgres=to_postgres)
    others = [str(path) for path, text in found.files.items() if path.exists() and path.read_text("utf-8") != text]
    if others:
        raise InputError(f"{' and '.join(others)}: there already; delete what you do not need, or give another --name")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in found.files.items():
        path.write_text(text, encoding="utf-8")
    return found


def _draft(
    service: str, samples: Sequence[Path], folder: Path, name: str | None, user: str | None, *, to_postgres: bool
) -> FirstDocument:
    lines = read_csv(samples, _LIMIT) if is_csv(samples) else None
    records = read_files(samples, _LIMIT) if lines is None else lines.as_json()
    stream = name or stream_name(samples[0].name)
    topic, source = stream.replace("_", "-"), ", ".join(path.name for path in samples)
    text = infer(observe(records), stream, source, from_topic=True).text
    if service == "etl" and _parse(text).event_id is None:
        entries = "".join(f"  {field}: {entry}\n" for field, entry in _PLACE.items())
        text = text.replace("\nfields:\n", f"\nfields:\n{entries}", 1)
    schema = _parse(text)
    document, stream_file = folder / f"{stream}.{service}.yaml", folder / f"{stream}.stream.yaml"
    reads = [f"schema_file: {stream_file.name}", f"topic: {topic}"]
    if lines is not None:
        reads.append(f"format: {lines.settings}")
    app = f"{topic[: _MAX_NAME - len(service) - 1].strip('-')}-{service}"
    settings = [
        f"# From {source}. What it makes of a sample: headgate {service} try {document.name} --sample FILE",
        f"app: {app}",
        f'kafka: {{bootstrap: "{HOST}:{KAFKA_PORT}"}}  # the local broker of headgate {service} run',
        f"checkpoint: .headgate/{app}",
        *(_etl(schema, reads) if service == "etl" else _sessions(schema, reads, user)),
    ]
    if service == "etl":
        table = f"rows: {{table: public.{stream}, key: [{', '.join(_id(schema))}]}}"
        settings.append(f"routes: [{{name: rows{', to: postgres' if to_postgres else ''}}}]")
    else:
        table = f"sessions_table: {{table: public.{stream}_sessions, key: [session_id], version: revision}}"
    if to_postgres:
        settings += [
            f"postgres:  # the local one of headgate {service} run",
            f"  {{host: {HOST}, port: {POSTGRES_PORT}, database: {DATABASE}, user: {USER},",
            f"   tables: {{{table}}}}}",
        ]
    return FirstDocument({stream_file: text, document: "\n".join(settings) + "\n"}, len(records), schema)


def _parse(text: str) -> StreamSchema:
    return StreamSchema.parse(yaml.load(text, Loader=SAFE_LOADER))  # noqa: S506 - a safe one


def _id(schema: StreamSchema) -> list[str]:
    """Return the columns that identify a row."""
    names = _column_names(schema.fields)
    return [names[field] for field in ([schema.event_id] if schema.event_id is not None else _PLACE)]


def _etl(schema: StreamSchema, source: Sequence[str]) -> Iterator[str]:
    """Yield the mapping of each field to a column."""
    names, first, *more = _column_names(schema.fields), *source
    yield from ("inputs:", f"  - {first}", *(f"    {entry}" for entry in more), "    map:")
    for field in schema.fields:
        quoted = _quote(field.name)
        yield f"      {names[field.name]}: {_yaml(f'to_json({quoted})' if field.type.kind in _NESTED else quoted)}"
    yield "model:"
    for field in schema.fields:
        kind = "string" if field.type.kind in _NESTED else str(field.type)
        yield f"  {names[field.name]}: {kind}{'' if field.nullable else ' not null'}"
    yield f"id: [{', '.join(_id(schema))}]"


def _sessions(schema: StreamSchema, source: Sequence[str], user: str | None) -> Iterator[str]:
    """Yield the sessions of the user, with the first, the last and the number of the values of some fields."""
    known = [field.name for field in schema.fields]
    user = user or next((name for key in schema.keys for name in key), None)
    if user not in known:
        named = f"there is no field {user}" if user else "no field looks like a user"
        raise InputError(f"{named}; name it with --user: {', '.join(known)}")
    yield f"stream: {{{', '.join(source)}}}"
    more = "" if schema.event_id is None else f", event_id: {_yaml(_quote(schema.event_id))}"
    yield f"fields: {{user: {_yaml(_quote(user))}{more}}}"
    others = [field for field in schema.fields if field.name not in (user, schema.event_id, schema.event_time)]
    names = _column_names(others)
    columns = [line for field in others for line in _session_columns(names[field.name], field)]
    yield from ("columns:", *(f"  {line}" for line in columns[: 3 * _MOST_COLUMNS])) if columns else ()
    yield "gap: {gap_ms: 1800000}                         # half an hour without an event ends a session"
    yield "early_ms: 2000                                 # rows of open sessions, too: they have is_final = false"
    yield "dashboard_metrics: null"


def _session_columns(name: str, field: Field) -> Iterator[str]:
    quoted, short = _quote(field.name), name[:50]
    if field.type.kind is Kind.STRING:
        yield f"first_{short}: {_yaml(f'first({quoted})')}"
        yield f"last_{short}: {_yaml(f'last({quoted})')}"
        yield f"{short}_count: {_yaml(f'count(distinct {quoted})')}"
    elif field.type.kind in (Kind.LONG, Kind.DECIMAL):
        yield f"{short}_sum: {_yaml(f'sum({quoted})')}"


def _quote(name: str) -> str:
    """Return a name as an expression has it."""
    return f"`{name}`" if name.lower() in KEYWORDS else quote_name(name)


def _yaml(expression: str) -> str:
    """Return the text of an expression as YAML, which reads no backquote at the beginning of a value."""
    return orjson.dumps(expression).decode() if "`" in expression else expression


def _column_names(fields: Iterable[Field]) -> Mapping[str, str]:
    """Return the name of the column of each field: small letters, as SQL has them without quotes."""
    found: dict[str, str] = {}
    for field in fields:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field.name)
        base = re.sub(r"[^a-z0-9_]", "_", words.lower()).strip("_")[:50] or "field"
        name, number = base if base[0].isalpha() else f"f_{base}", 2
        while name in found.values():
            name, number = f"{base}_{number}", number + 1
        found[field.name] = name
    return found
