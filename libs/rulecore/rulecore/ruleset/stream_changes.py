"""Stream documents that are published while the app runs, as the rules see them.

A cut decides about a document after the control records before it, against the streams in force and all versions of
rules. What it accepts is in force from the next cut on: only then can events be decoded by it. So the control records
behind it wait for the next cut too, and meet it there; their order is kept. The answer to an accepted document comes
with the cut that has it. Records with a rule that needs a new key of a stream wait likewise, until events are routed
by it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from rulecore.compile.cache import CompileContext, compile_feature, compile_version
from rulecore.compile.rule import CompiledRule
from rulecore.documents.control_keys import parse_key
from rulecore.documents.rule import RuleKind
from rulecore.documents.status import RuleStatus, answer_status
from rulecore.errors import RuleError, RuleSetError
from rulecore.ruleset.decision_policies import check_policy
from rulecore.ruleset.ruleset import RuleSet
from rulecore.streams import stream_names
from streamcore.engine.document_changes import DocumentAnswer, DocumentChanges, DocumentPlan, find_missing_stream
from streamcore.engine.publication import decode_stream, is_stream
from streamcore.errors import ConfigError
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema
from streamcore.schema.evolution import widened_fields
from streamcore.schema.published_document import PublishedDocument
from streamcore.state import KeyValueTable

if TYPE_CHECKING:  # formats take time to import, and few processes meet a document
    from streamcore.app import Source
    from streamcore.engine.published_streams import StreamPlan

#: Most bytes of control records that wait behind a document for the next cut.
MAX_WAITING_BYTES: Final = 64 << 20
_BEHIND = "behind:"


def next_streams(records: Sequence[ControlRecord]) -> tuple[Sequence[ControlRecord], ...]:
    """Divide records, in their order, into those before the first document, the documents that follow each other, and
    the rest."""
    start = next((n for n, record in enumerate(records) if is_stream(record)), len(records))
    end = next((n for n in range(start, len(records)) if not is_stream(records[n])), len(records))
    return records[:start], records[start:end], records[end:]


def check_rules(rules: RuleSet, old: StreamSchema, new: StreamSchema) -> None:
    """Raise ``RuleSetError``, naming the rule, feature or policy, if one cannot go on with a new document.

    A rule with state must compile to what it is now: its state holds values of the types that it reads. An event rule
    must be valid.
    """
    streams = {**rules.streams, new.name: new}
    after = CompileContext.of(streams, rules.limits, rules.lists, rules.features.documents)
    for position, compiled in sorted(rules.rules.items(), key=lambda pair: pair[0]):
        if new.name not in stream_names(compiled.rule.on):
            continue
        _check_rule(compiled, partial(compile_version, rules.stored[position], after), old, new)
    for name, keeper in sorted(rules.features.keepers.items()):
        if new.name in stream_names(keeper.rule.on):
            _check_rule(keeper, partial(compile_feature, rules.features.stored[name], after), old, new)
    check_policy(rules.policies, new.name, streams, rules.limits)


def _check_rule(
    compiled: CompiledRule, compile_again: Callable[[], CompiledRule], old: StreamSchema, new: StreamSchema
) -> None:
    """Raise ``RuleSetError`` if a rule, or one that keeps a published feature, cannot go on with the document."""
    subject, name = parse_key(compiled.rule.id)
    rule = f"{subject} {name} version {compiled.rule.version}"
    try:
        again = compile_again()
    except RuleError as error:
        raise RuleSetError(
            f"{rule} would not be valid any more: {error}; publish a version that is valid with both, or delete it"
        ) from None
    suppress = compiled.rule.suppress
    by = {*compiled.group_by, *(() if suppress is None else suppress.by)}
    has_state = compiled.kind is not RuleKind.EVENT
    if (has_state and again != compiled) or widened_fields(old, new) & by:
        wider = ", ".join(sorted(widened_fields(old, new)))
        why = f" with values of a type that would be another ({wider})" if wider else ", which would be another"
        raise RuleSetError(
            f"{rule} has state{why}: delete the {subject}, publish the document and then the {subject} again (headgate "
            "rules backfill fills its windows); or add a field under another name"
        )


@dataclass(slots=True)
class StreamChanges:
    """The documents that the next cut has, and the records that wait behind them. All of it is in ``table``.

    ``sources``: those of the app in this cut; empty if it takes no documents. ``limit_bytes``: of a record.
    """

    sources: Sequence[Source]
    limit_bytes: int
    changes: DocumentChanges = field(default_factory=DocumentChanges)

    @property
    def table(self) -> KeyValueTable:
        """The table with all of it."""
        return self.changes.table

    @property
    def is_waiting(self) -> bool:
        """Whether an earlier cut has left something."""
        return self.changes.is_waiting

    def take_waiting(self, schemas: Mapping[str, StreamSchema]) -> tuple[list[RuleStatus], list[ControlRecord]]:
        """Return the answers to the documents that the cut before has accepted, and the records behind them, and
        forget both. ``schemas``: of the streams in force."""
        answers = self.changes.take_answers(partial(find_missing_stream, schemas.values()))
        behind = dict(self.table)
        for key in behind:
            self.table.put(key, None)
        return [answer_status(one) for one in answers], [_decode_record(value) for value in behind.values()]

    def wait(self, records: Sequence[ControlRecord]) -> None:
        """Keep control records for the next cut."""
        for number, record in enumerate(records):
            self.table.put(f"{_BEHIND}{number:08}", _encode_record(record))

    def decide(
        self,
        records: Sequence[ControlRecord],
        behind: Sequence[ControlRecord],
        rules: RuleSet,
    ) -> tuple[list[RuleStatus], list[PublishedDocument]]:
        """Decide about documents that follow each other. Return the answers to those that are rejected or change
        nothing, and the accepted documents; with one, the records ``behind`` are kept for the next cut."""
        has_room = sum(len(record.value or b"") for record in behind) <= MAX_WAITING_BYTES
        after = rules

        def plan(record: ControlRecord) -> DocumentPlan:
            nonlocal after
            found = self._plan(record, after, has_room=has_room)
            if found.changes_nothing:
                return DocumentPlan(found.stream.version, ())
            self.sources = found.sources
            after = with_stream(after, found.stream.schema)
            return DocumentPlan(found.stream.version, (found.stream,), found.note)

        answers, accepted = self.changes.decide(records, plan)
        if accepted:
            self.wait(behind)
        return [answer_status(one) for one in answers], accepted

    def _plan(self, record: ControlRecord, rules: RuleSet, *, has_room: bool) -> StreamPlan:
        """Return the plan for a document; raise ``RuleError`` or ``ConfigError`` if it is rejected."""
        from streamcore.engine.published_streams import plan_stream

        if not self.sources:
            raise RuleSetError("this app takes no stream documents while it runs")
        published = decode_stream(record, self.limit_bytes)
        plan = plan_stream(self.sources, published.document, published.topic)
        if plan.before is not None:
            check_rules(rules, plan.before, plan.stream.schema)
        if not has_room:
            raise RuleSetError(
                f"more than {MAX_WAITING_BYTES} bytes of control records would wait behind it; publish it again"
            )
        return plan


def with_stream(rules: RuleSet, schema: StreamSchema) -> RuleSet:
    """Return the rule set with a new document of one of its streams, or with one more stream."""
    return RuleSet.restore({**rules.streams, schema.name: schema}, rules.limits, rules.records(), rules.lists)


def replay_stream(rules: RuleSet, record: ControlRecord, limit_bytes: int) -> tuple[RuleSet, RuleStatus]:
    """Return the rule set after a record in the log, and the answer, as far as schemas and rules decide it: formats and
    topics are in the settings of the app. So a new stream is taken on any topic."""
    from streamcore.app import Source
    from streamcore.engine.published_streams import StreamPlan, plan_stream

    try:
        published = decode_stream(record, limit_bytes)
        topic = published.topic or "unknown"
        sources = [Source(schema, topic) for schema in rules.streams.values()]
        name = published.document.get("name")
        plan = (
            plan_stream(sources, published.document, topic)
            if name in rules.streams
            else StreamPlan(PublishedDocument.of(topic, published.document), None, ())
        )
        if plan.before is not None:
            check_rules(rules, plan.before, plan.stream.schema)
    except (RuleError, ConfigError) as error:
        return rules, answer_status(DocumentAnswer(record, None, accepted=False, reason=str(error)))
    after = rules if plan.changes_nothing else with_stream(rules, plan.stream.schema)
    return after, answer_status(DocumentAnswer(record, plan.stream.version, accepted=True, reason=plan.note or None))


def _encode_record(record: ControlRecord) -> bytes:
    texts = [None if one is None else base64.b64encode(one).decode() for one in (record.key, record.value)]
    return orjson.dumps([record.partition, record.offset, *texts])


def _decode_record(value: bytes) -> ControlRecord:
    partition, offset, *texts = orjson.loads(value)
    return ControlRecord(partition, offset, *(None if one is None else base64.b64decode(one) for one in texts))


__all__: Sequence[str] = (
    "StreamChanges",
    "check_rules",
    "next_streams",
    "replay_stream",
    "with_stream",
)
