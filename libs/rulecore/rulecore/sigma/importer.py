"""Imports Sigma documents as Headgate rules: each becomes a rule, is part of a correlation, or is rejected.

A rejected document is reported with its reasons and does not affect others. Every imported rule compiles against the
stream. Equal documents give equal rules. The module reads no files: ``documents.yaml_reader`` parses the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rulecore.check import check_rules
from rulecore.compile.rule import RuleLimits
from rulecore.documents.loading import load_text
from rulecore.documents.rule import MAX_MESSAGE, MAX_TAGS, Rule
from rulecore.documents.scalars import MAX_TEXT
from rulecore.documents.yaml_reader import Json, Problem, YamlDocument, dotted_path
from rulecore.sigma.correlation import CorrelatedRule, CorrelationMember, correlate
from rulecore.sigma.detection import TranslatedDetection, translate
from rulecore.sigma.document import SigmaCorrelation, SigmaDetection, SigmaHeader, read_header, read_rule
from rulecore.sigma.errors import SigmaImportError
from rulecore.sigma.field_map import FieldMap
from rulecore.sigma.yaml_writer import write_document

_ID_CHARACTERS: Final = 70
_TAG_CHARACTERS: Final = 100
_OWNER: Final = "sigma"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import. ``group_by``: columns for correlations without a group-by of their own."""

    group_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedRule:
    """An imported rule. ``title``: that of its Sigma document. ``notes``: approximations."""

    file: str
    title: str
    rule: Rule
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CorrelationPart:
    """A rule that is imported only as part of correlations. ``correlations``: their titles."""

    file: str
    title: str
    correlations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RejectedDocument:
    """A document that is not imported."""

    file: str
    title: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The results in the order of the documents; in ``rejected``, the invalid Sigma documents come first."""

    imported: tuple[ImportedRule, ...]
    correlation_parts: tuple[CorrelationPart, ...]
    rejected: tuple[RejectedDocument, ...]


def import_rules(
    documents: Sequence[YamlDocument], fields: FieldMap, options: ImportOptions | None = None
) -> ImportReport:
    """Import every document that can be imported."""
    run = _Import(fields, options or ImportOptions())
    for document in documents:
        run.read(document)
    for one in run.sources:
        run.mark_members(one)
    run.mark_correlation_parts()
    for one in run.sources:
        run.convert(one)
    return ImportReport(tuple(run.imported), tuple(run.correlation_parts), tuple(run.rejected))


@dataclass(slots=True)
class _Source:
    """A valid Sigma document.

    ``translated``, ``fault``: the result of translating its condition, set at the first use. ``used_by``: the titles of
    the correlations that use it. ``generate``: one of them lets it alert. ``part``: it is not imported by itself.
    """

    rule: SigmaDetection | SigmaCorrelation
    translated: TranslatedDetection | None = None
    fault: SigmaImportError | None = None
    used_by: dict[str, None] = field(default_factory=dict)
    generate: bool = False
    part: bool = False

    @property
    def header(self) -> SigmaHeader:
        return self.rule.header


@dataclass(slots=True)
class _Import:
    """The state of one import. ``named``: the sources by id and by name. ``numbers``: the last number by id."""

    fields: FieldMap
    options: ImportOptions
    sources: list[_Source] = field(default_factory=list)
    named: dict[str, list[_Source]] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    imported: list[ImportedRule] = field(default_factory=list)
    correlation_parts: list[CorrelationPart] = field(default_factory=list)
    rejected: list[RejectedDocument] = field(default_factory=list)

    def read(self, document: YamlDocument) -> None:
        title = _title(document)
        try:
            header = read_header(document)
            source = _Source(read_rule(header))
        except SigmaImportError as error:
            self.reject(document, title, error)
            return
        self.sources.append(source)
        for name in header.names:
            self.named.setdefault(name, []).append(source)

    def reject(self, document: YamlDocument, title: str, error: SigmaImportError) -> None:
        path = document.known_prefix(error.path)
        problem = Problem(document.file, document.place(error.path), dotted_path(path), error.message)
        self.rejected.append(RejectedDocument(document.file, title, problem))

    def mark_members(self, source: _Source) -> None:
        """Mark the rules that a correlation uses."""
        if isinstance(source.rule, SigmaCorrelation):
            for name in source.rule.rules:
                for one in self.named.get(name, []):
                    one.used_by[source.header.title] = None
                    one.generate |= source.rule.generate

    def mark_correlation_parts(self) -> None:
        """Mark as parts the rules that a correlation uses which no other uses, directly or through others.

        Rules that only use each other in a circle stay unmarked, so that converting them reports the fault.
        """
        seen = [source for source in self.sources if not source.used_by]
        for source in seen:
            rules = source.rule.rules if isinstance(source.rule, SigmaCorrelation) else ()
            for one in (one for name in rules for one in self.named.get(name, [])):
                if not one.part and one.used_by:
                    one.part = True
                    seen.append(one)

    def convert(self, source: _Source) -> None:
        header = source.header
        if source.part and not source.generate:
            self.correlation_parts.append(CorrelationPart(header.document.file, header.title, tuple(source.used_by)))
            return
        try:
            rule, notes = self.build_rule(source)
        except SigmaImportError as error:
            self.reject(header.document, header.title, error)
            return
        self.ids.add(rule.id)
        self.imported.append(ImportedRule(header.document.file, header.title, rule, notes))

    def build_rule(self, source: _Source) -> tuple[Rule, tuple[str, ...]]:
        header = source.header
        if isinstance(source.rule, SigmaDetection):
            translated = self.translate_detection(source)
            found = CorrelatedRule({"where": translated.where.lines}, (), translated.notes)
        else:
            members = [self.build_member(name) for name in source.rule.rules]
            found = correlate(source.rule, members, self.fields, self.options.group_by)
        about, cut = _describe(header, self.fields.owner)
        document = {"id": self.new_id(header), "version": 1, **about, "on": self.fields.schema.name, **found.entries}
        document["then"] = {"severity": header.severity, "message": _write_message(header.title, found.group_by)}
        return self.check_document(document), (*header.notes, *cut, *found.notes)

    def translate_detection(self, source: _Source) -> TranslatedDetection:
        """Return the condition of a detection, which is translated once for all rules that use it."""
        assert isinstance(source.rule, SigmaDetection)
        if source.translated is None and source.fault is None:
            try:
                source.translated = translate(source.rule, self.fields)
            except SigmaImportError as error:
                source.fault = error
        if source.translated is None:
            assert source.fault is not None
            raise source.fault
        return source.translated

    def build_member(self, name: str) -> CorrelationMember:
        """Return the rule with this name or id as a member of a correlation."""
        source = self.find_source(name)
        if isinstance(source.rule, SigmaCorrelation):
            return self.build_event_count(name, source.rule)
        return CorrelationMember(name, source.header.names, self.translate_member(name, source))

    def find_source(self, name: str) -> _Source:
        """Return the only source with this id or name; raise ``SigmaImportError`` for none, or several."""
        found = self.named.get(name, [])
        if len(found) != 1:
            what = "no rule among the files" if not found else f"{len(found)} rules"
            raise SigmaImportError(f"{name!r} is {what} (by id or name)", ("correlation", "rules"))
        return found[0]

    def translate_member(self, name: str, source: _Source) -> TranslatedDetection:
        try:
            return self.translate_detection(source)
        except SigmaImportError as error:
            file = source.header.document
            where = f"{file.file}:{file.place(error.path).line}"
            raise SigmaImportError(f"its rule {name!r} ({where}): {error.message}", ("correlation", "rules")) from None

    def build_event_count(self, name: str, inner: SigmaCorrelation) -> CorrelationMember:
        """Return an ``event_count`` of one rule as a member that matches a number of its events."""
        lowest = [bound + (op == "gt") for op, bound in inner.bounds if op in ("gt", "gte")]
        source = self.find_source(inner.rules[0]) if len(inner.rules) == 1 else None
        simple = inner.type == "event_count" and len(lowest) == len(inner.bounds) == 1
        if not simple or source is None or isinstance(source.rule, SigmaCorrelation):
            message = (
                f"{name!r} is a correlation; only an event_count of one rule with gt or gte can be part of another"
            )
            raise SigmaImportError(message, ("correlation", "rules"))
        names = (*inner.header.names, *source.header.names)
        return CorrelationMember(
            name, names, self.translate_member(inner.rules[0], source), max(1, lowest[0]), inner.timespan_ms
        )

    def new_id(self, header: SigmaHeader) -> str:
        """Make an id from the title; with the beginning of its Sigma id, or a number, where that is taken."""
        slug = re.sub("[^a-z0-9]+", "-", header.title.lower()).strip("-")[:_ID_CHARACTERS].strip("-") or "sigma-rule"
        more = re.sub("[^a-z0-9]", "", header.id.lower())[:8]
        if slug in self.ids and more and f"{slug}-{more}" not in self.ids:
            return f"{slug}-{more}"
        self.numbers[slug] = self.numbers.get(slug, 0) + (slug in self.ids)
        while (number := self.numbers[slug]) and f"{slug}-{number + 1}" in self.ids:
            self.numbers[slug] += 1
        return f"{slug}-{number + 1}" if number else slug

    def check_document(self, document: Mapping[str, Json]) -> Rule:
        """Return the rule as read back from its file; raise the problems that ``headgate rules check`` would report."""
        loaded, problems = load_text(write_document(document, ()))
        report = check_rules(loaded, {self.fields.schema.name: self.fields.schema}, RuleLimits())
        if faults := [*problems, *report.problems]:
            raise SigmaImportError("; ".join(": ".join(part for part in (p.path, p.message) if part) for p in faults))
        return report.rules[0].rule


def _title(document: YamlDocument) -> str:
    title = document.value.get("title") if isinstance(document.value, dict) else None
    return " ".join(title.split())[:200] if isinstance(title, str) else "(no title)"


def _describe(header: SigmaHeader, owner: str | None) -> tuple[dict[str, Json], list[str]]:
    """Return owner, description and tags, and notes on the parts that had to be cut."""
    cut = []
    notes = [f"Sigma {name}: {text}" for name, text in header.more.items()]
    description = "\n".join([*([header.description] if header.description else []), *notes])
    if len(description) > MAX_TEXT:
        description = description[: MAX_TEXT - 3] + "..."
        cut.append(f"the description was cut to {MAX_TEXT} characters")
    tags = [*dict.fromkeys(tag for tag in header.tags if 0 < len(tag) <= _TAG_CHARACTERS)][:MAX_TAGS]
    if len(tags) < len(set(header.tags)):
        cut.append(f"tags: {len(tags)} of {len(set(header.tags))} were kept")
    entries: dict[str, Json] = {"owner": (owner or header.author or _OWNER)[:200], "description": description}
    return ({**entries, "tags": [*tags]} if tags else entries), cut


def _write_message(title: str, group_by: Iterable[str]) -> str:
    keys = "".join(f", {name} {{{name}}}" for name in group_by)
    room = MAX_MESSAGE - len(keys) - 10
    # cut before the braces are doubled, so that no pair is cut in half
    text = title[: room // 2].replace("{", "{{").replace("}", "}}") if "{" in title or "}" in title else title[:room]
    return text + keys
