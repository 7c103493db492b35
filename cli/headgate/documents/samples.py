"""The records that an app is tried on: of files, or the latest of topics, for each of its inputs."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import InputError
from headgate.streams.sample import SampleRecord, read_files, read_topic
from streamcore.decode.formats import Avro, Csv, Registry
from streamcore.decode.scalar import StreamRecord
from streamcore.schema.record_places import KAFKA

if TYPE_CHECKING:
    from streamcore.app import App, Source
    from streamcore.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """``samples``: texts ``PATH`` or ``INPUT=PATH``. ``topics``: ``TOPIC`` or ``INPUT=TOPIC``. ``limit``: most records
    of each input."""

    samples: Sequence[str] = ()
    topics: Sequence[str] = ()
    limit: int = 1_000


def read_samples(app: App, options: SampleOptions, kafka: KafkaSettings) -> dict[str, list[SampleRecord]]:
    """Return the records by the name of the stream. ``InputError`` if there are none, or an input is unknown."""
    files = _by_input(app, options.samples, "--sample")
    topics = _by_input(app, options.topics, "--topic")
    if not files and not topics:
        raise InputError("name what to try it on: --sample FILE, or --topic TOPIC for the latest records of a topic")
    found: dict[str, list[SampleRecord]] = {}
    sources = {source.schema.name: source for source in app.sources}
    for name, paths in files.items():
        found.setdefault(name, []).extend(_read(sources[name], [Path(path) for path in paths], options.limit))
    for name, named in topics.items():
        for topic in named:
            found.setdefault(name, []).extend(read_topic(kafka, topic, options.limit))
    if not any(found.values()):
        raise InputError("the sample has no records")
    return found


def read_records_to_send(app: App, given: Sequence[str]) -> dict[str, list[bytes]]:
    """Return the records of the files of ``--send`` by their topic, each file as ``read_files`` reads it.

    A first line of CSV that has the names of the columns is no record. ``InputError`` if a file cannot be read, or an
    input is unknown.
    """
    sources = {source.schema.name: source for source in app.sources}
    found: dict[str, list[bytes]] = {}
    for name, paths in _by_input(app, given, "--send").items():
        source = sources[name]
        for path in paths:
            values = [record.value for record in read_files([Path(path)], sys.maxsize)]
            is_head = bool(values) and isinstance(source.format, Csv) and _has_names(values[0], source.format)
            found.setdefault(source.topic, []).extend(values[is_head:])
    return found


def _has_names(line: bytes, form: Csv) -> bool:
    cells = next(csv.reader([line.decode("utf-8-sig", "replace")], delimiter=form.delimiter), [])
    return form.columns is not None and [*form.columns] == cells


def _read(source: Source, paths: Sequence[Path], limit: int) -> list[SampleRecord]:
    if isinstance(source.format, Avro | Registry):  # binary: a file is a record
        try:
            return [SampleRecord(str(path), StreamRecord(path.read_bytes())) for path in paths[:limit]]
        except OSError as error:
            raise InputError(f"--sample: cannot be read: {error}") from None
    return read_files(paths, limit)


def _by_input(app: App, given: Sequence[str], option: str) -> dict[str, list[str]]:
    """Return the values of an option by the name of the stream that they are for."""
    names: Mapping[str, str] = {
        **{source.topic: source.schema.name for source in reversed(app.sources)},
        **{source.schema.name: source.schema.name for source in app.sources},
    }
    # A sample has values alone, and a stream that has nothing in them, such as that of a table, takes none.
    of_values = [one for one in app.sources if any(field.location[0] != KAFKA for field in one.schema.fields)]
    readable = of_values or app.sources
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if equals and name in names:
            found.setdefault(names[name], []).append(value)
        elif len({source.topic for source in readable}) == 1:
            found.setdefault(readable[0].schema.name, []).append(text)
        elif not equals and option == "--topic" and text in names:
            found.setdefault(names[text], []).append(text)
        else:
            inputs = " and ".join(f"{option} {source.schema.name}=..." for source in readable)
            raise InputError(f"{option} {text}: the app has several inputs; write {inputs}")
    return found
