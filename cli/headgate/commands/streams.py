"""``headgate streams``: stream documents from samples of records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.commands.rules.publishing import response_options, running_app, show_published
from headgate.console.messages import to_stderr
from headgate.console.output import Json, Output, emit, output_option
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin, login_option
from headgate.records.formats import RecordFormats
from headgate.rules.options import formats_option, server_option, streams_option, target_option
from headgate.streams.sample import SampleRecord

if TYPE_CHECKING:  # samples of JSON need none of these
    from headgate.rules.remote import RemoteApp
    from headgate.rules.render import Row
    from headgate.streams.observed_fields import Observation
    from rulecore.documents.rule import Rule
    from streamcore.decode.formats import InputFormat
    from streamcore.schema import StreamSchema

_SAMPLE = click.argument("sample", nargs=-1, type=click.Path(path_type=Path))
_TOPIC = click.option("--topic", default=None, help="Take the sample from this topic: its latest records.")
_LIMIT = click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="Records of the sample."
)
_SHOWN = 3


@click.group(name="streams")
def command() -> None:
    """Write stream documents from samples, check samples against them, and publish them to a running app."""


@command.command()
@_SAMPLE
@_TOPIC
@_LIMIT
@click.option("--name", default=None, help="Name of the stream (default: that of the file or topic).")
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Settings file of an app, for the format of --topic and the schema registry (default: JSON).",
)
@click.option("--registry", default=None, metavar="URL", help="Schema registry of --topic, instead of --settings.")
@login_option
def infer(
    sample: tuple[Path, ...],
    topic: str | None,
    limit: int,
    name: str | None,
    settings: Path | None,
    registry: str | None,
    login: KafkaLogin,
) -> int:
    """Print a stream document for SAMPLE: JSON files or folders of them, files of CSV whose first line names the
    columns, Avro container files (.avro), or --topic.

    Types, places, event time, id and keys are those that the sample shows, or the schemas that its records are written
    with; comments say how often each field is there, and what is left to decide. The stream file that --settings name
    need not be there yet. Exit code 1 if no field can be the event time.
    """
    from headgate.streams.csv_sample import is_csv, read_csv
    from headgate.streams.inference import infer as infer_document
    from headgate.streams.sample import find_avro, stream_name

    formats = _sample_formats(topic, settings, registry)
    containers = find_avro(sample) if topic is None else []
    lines = read_csv(sample, limit) if topic is None and not containers and is_csv(sample) else None
    if containers:
        from headgate.streams.avro_sample import read_avro

        records = read_avro(containers, limit)
    else:
        records = _read(sample, topic, limit, login) if lines is None else lines.as_json()
    source = topic or ", ".join(path.name for path in sample)
    stream = name or stream_name(topic or sample[0].name)
    written = _avro() if containers else None if topic is None else formats.by_topic.get(topic)
    observation = _observe(records, written, formats)
    with_schemas = written is not None and not written.is_text
    found = infer_document(observation, stream, source, from_topic=topic is not None, written=with_schemas)
    if lines is not None:
        click.echo(f"# The app that reads it has `format: {lines.settings}`; a line with the names is a dead letter.")
    if containers:
        click.echo("# The app that reads such files, one in each message, has `format: {kind: avro}`.")
    click.echo(found.text, nl=False)
    if found.problem:
        to_stderr(f"headgate: the document is not complete: {found.problem}")
    return 1 if found.problem else 0


@command.command()
@_SAMPLE
@_TOPIC
@_LIMIT
@click.option("--stream", required=True, help="Name of a stream in --streams, or the file of its document.")
@click.option(
    "--streams", type=click.Path(file_okay=False, path_type=Path), default=None, help="Folder of the streams."
)
@login_option
@formats_option
@output_option
def check(
    sample: tuple[Path, ...],
    topic: str | None,
    limit: int,
    stream: str,
    streams: Path | None,
    login: KafkaLogin,
    formats: RecordFormats,
    output: Output,
) -> int:
    """Say how many records of SAMPLE the document of a stream takes, and why it rejects the others.

    Exit code 1 if it rejects any.
    """
    from headgate.records.decoder import EventDecoder
    from headgate.records.stream_files import load_stream
    from headgate.streams.csv_sample import is_csv, read_csv
    from headgate.streams.sample import find_avro
    from streamcore.decode.scalar import RejectedRecord
    from streamcore.schema.record_places import KAFKA

    path = Path(stream)
    schema = load_stream(path.stem, path.parent) if path.suffix in (".yaml", ".yml") else load_stream(stream, streams)
    now_ms = round(time.time() * 1000)
    if topic is None and (containers := find_avro(sample)):
        from headgate.streams.avro_sample import read_avro

        records: Sequence[SampleRecord] = read_avro(containers, limit)
        decode = EventDecoder(schema, now_ms, _avro())
    elif topic is None and is_csv(sample):
        from streamcore.decode.formats import Csv

        lines_of_csv = read_csv(sample, limit)
        records = lines_of_csv.records
        decode = EventDecoder(schema, now_ms, Csv(lines_of_csv.columns, lines_of_csv.delimiter))
    else:
        records = _read(sample, topic, limit, login)
        decode = EventDecoder(schema, now_ms) if topic is None else formats.decoder(schema, topic, now_ms)
    decoded = decode.decode_each([one.record for one in records])
    reasons: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for record, result in zip(records, decoded, strict=True):
        if isinstance(result, RejectedRecord):
            reasons[result.general] += 1
            places.setdefault(result.general, []).append(f"{record.place}: {result.reason}")
    nulls = Counter(
        name
        for row in decoded
        if isinstance(row, tuple)
        for name, value in zip(schema.names, row, strict=True)
        if value is None
    )
    taken, rejected = sum(isinstance(row, tuple) for row in decoded), reasons.total()
    ignored = len(records) - taken - rejected
    lines = [f"{schema.name} takes {taken:,} of {len(records):,} records"]
    if ignored:
        lines.append(f"  {ignored:,} ignored: events of other streams (when), or tombstones")
    for general, count in reasons.most_common():
        lines.append(f"  {count:,} rejected: {general}")
        lines += [f"      {place}" for place in places[general][:_SHOWN]]
    if always := [name for name in schema.names if taken and nulls[name] == taken]:
        lines.append(f"  never there: {', '.join(always)}")
    if topic is None and (absent := [f.name for f in schema.fields if f.location[0] == KAFKA]):
        lines.append(f"  a file has values of records alone: {', '.join(absent)} are null here, and headers are absent")
    data: Json = {
        "stream": schema.name,
        "records": len(records),
        "taken": taken,
        "ignored": ignored,
        "rejected": [{"reason": g, "records": n, "examples": places[g][:_SHOWN]} for g, n in reasons.most_common()],
        "nulls": dict(nulls),
    }
    emit(output, data, "\n".join(lines))
    return 1 if rejected else 0


def _read(sample: tuple[Path, ...], topic: str | None, limit: int, login: KafkaLogin) -> list[SampleRecord]:
    from headgate.console.progress import progress
    from headgate.streams.sample import read_files, read_topic

    if bool(sample) is (topic is not None):
        raise click.UsageError("give files or folders with a sample, or --topic")
    if topic is None:
        records = read_files(sample, limit)
    else:
        with progress(f"reading {topic}", None) as on_progress:
            records = read_topic(login.settings("headgate-streams"), topic, limit, on_progress)
    if not records:
        raise InputError(f"{topic or sample[0]}: there are no records")
    return records


def _sample_formats(topic: str | None, settings: Path | None, registry: str | None) -> RecordFormats:
    from headgate.records.formats import ALL_JSON, read_topic_format, registry_format

    if settings is None and registry is None:
        return ALL_JSON
    if topic is None or (settings is not None and registry is not None):
        raise click.UsageError("one of --settings and --registry says how the records of --topic are written")
    return registry_format(registry or "", topic) if settings is None else read_topic_format(settings, topic)


def _avro() -> InputFormat:
    from streamcore.decode.formats import Avro

    return Avro()


def _observe(records: list[SampleRecord], written: InputFormat | None, formats: RecordFormats) -> Observation:
    if written is None:
        from headgate.streams.observed_fields import observe

        return observe(records)
    from headgate.streams.written_records import observe_written
    from streamcore.decode.formats import JSON

    if written == JSON:
        return _observe(records, None, formats)
    return observe_written(records, written, formats.lookup, round(time.time() * 1000))


@command.command()
@click.argument("old", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.argument("new", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option(
    "--rules", multiple=True, type=click.Path(exists=True, path_type=Path), help="File or folder of rules; repeatable."
)
@streams_option
@output_option
def diff(old: Path, new: Path, rules: tuple[Path, ...], streams: Path | None, output: Output) -> int:
    """Say what the change from document OLD to NEW means for records, for rules and for their state, and whether a
    running app takes it.

    The other streams of a rule over several are those of --streams. Exit code 1 if a rule that is valid with OLD is not
    with NEW.
    """
    from headgate.records.stream_files import read_stream
    from headgate.rules.bundle import read_lists, read_rules
    from headgate.streams.schema_diff import RuleFate, diff_rules, diff_schemas
    from streamcore.schema.evolution import find_problems

    before, after = read_stream(old), read_stream(new)
    changes = diff_schemas(before, after)
    lists = {one.head.list: one.head.type for one in read_lists(None)[0]}
    reading = read_rules(rules)
    effects = diff_rules(before, after, reading, lists, _other_streams(before, reading, streams))
    lines = [f"{after.name}: {len(changes)} {'change' if len(changes) == 1 else 'changes'}"]
    for change in changes:
        shown = " -> ".join(text for text in (change.before, change.after) if text is not None)
        mark = "+" if change.before is None else "-" if change.after is None else "~"
        lines += [f"  {mark} {change.entry}: {shown}", f"      {change.effect}"]
    lines += [f"{len(effects)} {'rule reads' if len(effects) == 1 else 'rules read'} it"] if rules else []
    lines += [f"  {one.fate:8}  {one.rule}: {one.reason}" for one in effects if one.fate is not RuleFate.SAME]
    same = sum(one.fate is RuleFate.SAME for one in effects)
    lines += [f"  same      {same} of them"] if same else []
    problems = find_problems(before, after)
    lines.append("no running app takes it" if problems else "a running app takes it: headgate streams publish")
    lines += [f"  {problem}" for problem in problems]
    data: Json = {
        "stream": after.name,
        "live_problems": problems,
        "changes": [{"entry": c.entry, "before": c.before, "after": c.after, "effect": c.effect} for c in changes],
        "rules": [{"rule": e.rule, "fate": e.fate.value, "reason": e.reason} for e in effects],
    }
    emit(output, data, "\n".join(lines))
    return 1 if any(one.fate is RuleFate.REJECTED for one in effects) else 0


def _other_streams(old: StreamSchema, rules: Sequence[Rule], folder: Path | None) -> dict[str, StreamSchema]:
    """Return the streams that rules on ``old`` read besides it; raise ``InputError`` if one is not in the folder."""
    from headgate.records.stream_files import load_stream
    from rulecore.streams import stream_names

    read = {name for rule in rules if old.name in stream_names(rule.on) for name in stream_names(rule.on)}
    return {name: load_stream(name, folder) for name in sorted(read - {old.name})}


@command.command(short_help="Publish stream documents to a running rules app.")
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, exists=True, path_type=Path))
@target_option
@server_option
@response_options
@click.option("--topic", default=None, help="Topic of a stream that is new to the app; it must read it already.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the app's responses.")
@output_option
def publish(
    files: tuple[Path, ...],
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    wait: float,
    why: str | None,
    topic: str | None,
    output: Output,
    *,
    no_wait: bool,
) -> int:
    """Publish stream documents FILES to a running rules app, and show its responses.

    The app takes new optional fields, wider types, fields that may be absent now, and new streams on topics that it
    reads, and goes on with all state. What it cannot take while it runs is rejected with what to do instead. The
    version in the document must be above that in force. Give the same files to the app's settings for its next start.
    Exit code 1 when the app rejects a document, or when a response does not come in time.
    """
    from headgate.records.stream_files import read_document
    from headgate.rules.publish import ControlChange, note_for_user
    from headgate.rules.publish import publish as send
    from streamcore.engine.publication import StreamPublication
    from streamcore.errors import ConfigError
    from streamcore.schema.published_document import PublishedDocument

    changes = []
    documents = []
    for file in files:
        document = read_document(file)
        try:
            schema = PublishedDocument.of(topic or "", document).schema
        except ConfigError as error:
            raise InputError(f"{file}: {error}; nothing was published") from None
        record = StreamPublication(document, topic)
        changes.append(ControlChange(record.key, record.encode(), schema.name, schema.version))
        documents.append((document, schema.version))
    if server is not None:
        wait_ms = 0 if no_wait else round(wait * 1000)
        answered = [server.publish_stream(one, topic, version, why, wait_ms) for one, version in documents]
        return show_published(answered, app, wait, output, waited=not no_wait)
    kafka, topics = running_app(login, app)
    published = send(kafka, topics, changes, note_for_user(why), None if no_wait else round(wait * 1000))
    return show_published(published, app, wait, output, waited=not no_wait)


@command.command(name="list", short_help="List the streams of an app, and its published mapping.")
@streams_option
@target_option
@server_option
@output_option
def list_(streams: Path | None, login: KafkaLogin, app: str, server: RemoteApp | None, output: Output) -> None:
    """List the streams that an app has: those of the files, and what was published to it while it ran.

    The command reads the files, the control topic and the answers; the app need not run. RULES counts the versions of
    rules that read the stream. Of an etl app a row is the mapping that was published to it, with the number of its
    fields, and FROM says which streams came with it.
    """
    from headgate.rules.bundle import load_streams
    from headgate.rules.history import accepted_mapping, read_history
    from headgate.rules.publish import read_all_responses, read_log
    from headgate.rules.render import as_json, as_table
    from rulecore.streams import stream_names

    head = ("STREAM", "VERSION", "FROM", "FIELDS", "RULES")
    if server is not None:
        rows: list[Row] = server.stream_rows()
        emit(output, as_json(head, rows), as_table(head, rows))
        return
    kafka, topics = running_app(login, app)
    files, known = load_streams(streams), read_history(kafka, topics, streams).rules
    rows = [
        (
            name,
            schema.version,
            "file" if files.get(name) == schema else "published",
            len(schema.fields),
            sum(name in stream_names(rule.rule.on) for rule in known.rules.values()),
        )
        for name, schema in sorted(known.streams.items())
    ]
    mapping = accepted_mapping(app, read_log(kafka, topics), read_all_responses(kafka, topics))
    if mapping is not None:
        with_it = {name for name, *_ in mapping.streams}
        rows = [row for row in rows if row[0] not in with_it]
        rows += [(name, version, "mapping", fields, 0) for name, version, fields in mapping.streams]
        rows.append((app, mapping.version, "published", mapping.fields, 0))
    emit(output, as_json(head, rows), as_table(head, rows))
