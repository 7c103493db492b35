"""The report of `headgate rules check`: problems with their positions in the files, and the cost of each rule.

It needs no cluster. It finds every problem for which the app would reject a rule, with an equal message. It does not
run rules: ``rulecore.testing.rule_tests`` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rulecore import language as lang
from rulecore.compile.feature import LATEST_FUNCTIONS, VALUE_FUNCTIONS
from rulecore.compile.rule import CompiledRule, EventCountWindow, RuleLimits, SessionWindow, TimeWindow, compile_rule
from rulecore.compile.score_compatibility import incompatibility
from rulecore.compile.sequence_conditions import RuleLeaf
from rulecore.documents.loading import LoadedRule
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.rule import Emit, Rule, RuleKind, canonical_json
from rulecore.documents.rule_kinds import Skip
from rulecore.documents.yaml_reader import (
    PathKey,
    Problem,
    SourceLocation,
    YamlDocument,
    dotted_path,
    parse_path,
)
from rulecore.errors import ExpressionError, RuleError
from rulecore.language import ListType
from rulecore.matching.access_plan import AccessPath
from rulecore.null_keys import null_keys
from rulecore.printable import format_count
from rulecore.streams import find_stream
from rulecore.testing.rule_tests import ALERT_FIELDS, parse_offset_ms
from rulecore.unique_keys import Event, unique_keys
from streamcore.durations import render_duration
from streamcore.schema import StreamSchema

_BYTES_PER_PANE: Final = 32  # one aggregate of one key in one pane
_BYTES_PER_DISTINCT: Final = 24  # one distinct value of one key in one pane
_BYTES_PER_LATEST: Final = 170  # the latest event of one key or value, with the key
_BYTES_PER_EXPECTED: Final = 340  # one key of an absence rule, with its place in the indices
_BYTES_PER_SIGNAL: Final = 400  # one signal, as an object and in its places


@dataclass(frozen=True, slots=True)
class RuleCost:
    """The expected cost of a rule. ``note``: a text for its author, who should read it if ``cheap`` is false.

    ``access``: None for window and score rules; of a sequence, the least selective of its conditions. ``panes``: panes
    per window. ``bytes_per_key``: state per key; of a sequence, that of one nearly complete partial match.
    """

    rule: str
    access: AccessPath | None
    panes: int
    bytes_per_key: int
    cheap: bool
    note: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Problems by file and position; the compiled rules without problems; and the cost of each of these rules.

    ``warnings``: what an author should read of rules that the app accepts.
    """

    problems: tuple[Problem, ...]
    rules: tuple[CompiledRule, ...]
    costs: tuple[RuleCost, ...]
    warnings: tuple[Problem, ...]


def check_rules(
    documents: Sequence[LoadedRule],
    streams: Mapping[str, StreamSchema],
    limits: RuleLimits | None = None,
    lists: Mapping[str, ListType] | None = None,
    samples: Mapping[str, Sequence[Event]] | None = None,
    published: Mapping[str, PublishedFeature] | None = None,
) -> CheckReport:
    """Check rule documents against the streams, the lists, the published features and each other. ``samples``: events
    by stream."""
    limits = limits or RuleLimits()
    problems = [problem for loaded in documents for problem in loaded.problems]
    problems += _duplicate_ids(documents)
    rules, warnings = [], list[Problem]()
    for loaded in documents:
        if loaded.rule is not None:
            compile_one = partial(compile_rule, loaded.rule, streams, limits, lists or {}, published or {})
            compiled, faults = _compile(loaded.rule, loaded.document, streams, limits, compile_one)
            problems += faults
            if compiled is not None and not faults:
                rules.append(compiled)
                warnings += _doubtful_parts(compiled, loaded.document, streams, samples or {})
    warnings += _unknown_signals(documents)
    problems += _useless_signals(
        [loaded for loaded in documents if loaded.rule is not None], {c.rule.id: c for c in rules}, streams
    )
    if len(documents) > limits.rules:
        file = documents[-1].document.file
        problems.append(Problem(file, SourceLocation(1, 1), "", f"{len(documents)} rules, at most {limits.rules}"))
    costs = tuple(cost(rule) for rule in rules)
    return CheckReport(tuple(sorted(problems)), tuple(rules), costs, tuple(sorted(warnings)))


def _doubtful_parts(
    rule: CompiledRule,
    document: YamlDocument,
    streams: Mapping[str, StreamSchema],
    samples: Mapping[str, Sequence[Event]],
) -> Iterable[Problem]:
    """Find keys of state that are new with almost every event, those that are NULL in some events, features that leave
    out much of what decays, and steps that take no event."""
    schema = find_stream(streams, rule.rule.on)
    keys = (*unique_keys(rule, schema, samples.get(rule.rule.on, ())), *null_keys(rule, schema))
    for field, message in (*keys, *_short_decays(rule), *_comparisons_with_itself(rule)):
        place = document.place(parse_path(field))
        yield Problem(document.file, place, field, message, rule.rule.id)


def _short_decays(rule: CompiledRule) -> Iterable[tuple[str, str]]:
    """Yield the field and a message for each decayed value whose time back is short for its half-life."""
    for number, one in enumerate(rule.features):
        if one.half_life_ms is not None and one.size_ms < _HALF_LIVES * one.half_life_ms:
            back, wanted = render_duration(one.size_ms), render_duration(_HALF_LIVES * one.half_life_ms)
            left_out = f"{one.text} leaves out what is more than {back} back, which would still count"
            yield f"features.{number}.within", f"{left_out}; write {_HALF_LIVES} half-lives, {wanted}, or more"


def _comparisons_with_itself(rule: CompiledRule) -> Iterable[tuple[str, str]]:
    """Yield the field and a message for each condition that compares a value of an event with itself."""
    leaves = () if rule.sequence is None else rule.sequence.automaton.leaves
    for leaf in leaves:
        for term in lang.conjuncts(leaf.expr) if isinstance(leaf, RuleLeaf) else ():
            if isinstance(term, lang.Compare) and term.left == term.right and term.op in ("<", ">", "<>"):
                message = (
                    f"{lang.render(term)} is never true: in a step, STEP.x of its own name is x of the event itself"
                )
                yield "sequence", f"{message}; name an earlier step, or write last(STEP.x) for the event taken before"


def _unknown_signals(documents: Sequence[LoadedRule]) -> Iterable[Problem]:
    """Find score rules that name a rule which is not among several documents."""
    ids = {loaded.rule.id for loaded in documents if loaded.rule is not None}
    for loaded in documents if len(ids) > 1 else ():
        score = None if loaded.rule is None else loaded.rule.score
        for name in () if score is None else score.of:
            if loaded.rule is not None and name not in ids:
                place = loaded.document.place(("score", "of", name))
                message = f"no rule {name} is among these files; without it nothing gives this score"
                yield Problem(loaded.document.file, place, f"score.of.{name}", message, loaded.rule.id)


def _useless_signals(
    documents: Iterable[LoadedRule], rules: Mapping[str, CompiledRule], streams: Mapping[str, StreamSchema]
) -> Iterable[Problem]:
    """Find score rules that name a rule which can give them nothing."""
    for loaded in documents:
        score = rules.get(loaded.rule.id) if loaded.rule is not None else None
        for name in score.score.weights if score is not None and score.score is not None else ():
            assert score is not None, "it has names"
            if name in rules and (reason := incompatibility(score, rules[name], streams)) is not None:
                place = loaded.document.place(("score", "of", name))
                yield Problem(loaded.document.file, place, f"score.of.{name}", reason, score.rule.id)


def _duplicate_ids(documents: Iterable[LoadedRule]) -> Iterable[Problem]:
    first: dict[str, YamlDocument] = {}
    for loaded in documents:
        if loaded.rule is None:
            continue
        document = loaded.document
        before = first.setdefault(loaded.rule.id, document)
        if before is not document:
            message = f"the id {loaded.rule.id!r} is taken by {before.file}:{before.place(()).line}"
            yield Problem(document.file, document.place(("id",)), "id", message, loaded.rule.id)


def _compile(
    rule: Rule,
    document: YamlDocument,
    streams: Mapping[str, StreamSchema],
    limits: RuleLimits,
    compile_one: Callable[[], CompiledRule],
) -> tuple[CompiledRule | None, list[Problem]]:
    if (problem := find_excess(canonical_json(rule), limits, document, "rule", rule.id)) is not None:
        return None, [problem]
    try:
        compiled = compile_one()
    except RuleError as error:
        return None, [locate_error(error, document, rule.id)]
    schema = find_stream(streams, rule.on)
    return compiled, [*_tests(rule, document, schema), *_times(rule, document, schema)]


def _times(rule: Rule, document: YamlDocument, schema: StreamSchema) -> Iterable[Problem]:
    """Find times of events in tests that begin as ``+90s`` does and are no such time."""
    for number, test in enumerate(rule.tests):
        for i, row in enumerate(test.events):
            path = ("tests", number, "events", i, schema.event_time)
            try:
                parse_offset_ms(row.get(schema.event_time))
            except ValueError as error:
                yield Problem(document.file, document.place(path), dotted_path(path), str(error), rule.id)


def find_excess(record: bytes, limits: RuleLimits, document: YamlDocument, kind: str, name: str) -> Problem | None:
    """Return a problem if the record of a document has too many bytes. ``kind``: of document, such as rule."""
    if len(record) <= limits.record_bytes:
        return None
    message = f"the {kind} has {len(record)} bytes as a record, at most {limits.record_bytes}"
    message += _SHORTER.get(kind, "")
    return Problem(document.file, document.place(()), "", message, name)


def locate_error(error: RuleError, document: YamlDocument, name: str) -> Problem:
    """Return an error of compiling a document as a problem with its place. ``name``: of what it describes."""
    if isinstance(error, ExpressionError):
        place = document.expression_place(parse_path(error.field), error.line, error.column)
        hinted = f"{error.message}; {error.hint}" if error.hint else error.message
        return Problem(document.file, place, error.field, hinted, name, error.underline())
    field, _, message = str(error).partition(": ")
    return Problem(document.file, document.place(parse_path(field)), field, message, name)


def _tests(rule: Rule, document: YamlDocument, schema: StreamSchema) -> list[Problem]:
    """Find fields in tests that no event and no alert has: such a test would pass or fail for the wrong reason."""
    paths: list[tuple[PathKey, Collection[str]]] = []
    # An alert of an event rule has the first of the stream's keys.
    alert = ALERT_FIELDS.union(rule.group_by or schema.keys[0])
    for number, test in enumerate(rule.tests):
        paths += [(("tests", number, "events", i, n), schema.names) for i, row in enumerate(test.events) for n in row]
        paths += [(("tests", number, "expect", i, n), alert) for i, row in enumerate(test.expect) for n in row]
    return [
        Problem(
            document.file,
            document.place(path),
            dotted_path(path[:-1]),
            f"there is no {path[-1]}; there are {', '.join(sorted(known))}",
            rule.id,
        )
        for path, known in paths
        if str(path[-1]) not in known
    ]


_ACCESS_NOTES: Final[Mapping[AccessPath, str]] = {
    AccessPath.EQUALITY_AND_BOUND: "looked up by value and bound: cost follows its matches",
    AccessPath.EQUALITY: "looked up by value: cost follows the events that have the value",
    AccessPath.LITERALS: "found by the texts that it needs: cost follows the events that have one of them",
    AccessPath.BOUND: "looked up by one bound: cost follows the events beyond it",
    AccessPath.SCAN: "one condition is evaluated on every event, for about 0.05 to 0.3 microseconds; "
    "an equality, a bound or a literal that must occur would be cheaper",
    AccessPath.ALL: "the condition is checked on every event, for about 0.05 to 0.3 microseconds a part; "
    "an equality, a bound or a literal that must occur, outside `or`, would be cheaper",
}


def cost(rule: CompiledRule) -> RuleCost:
    """Return the estimate for one rule."""
    if rule.kind in _BY_KIND:
        return _BY_KIND[rule.kind](rule)
    if rule.window is None:
        access = rule.plan.access if rule.plan is not None else AccessPath.ALL
        return RuleCost(
            rule.rule.id, access, 0, 0, access not in (AccessPath.SCAN, AccessPath.ALL), _ACCESS_NOTES[access]
        )
    panes = rule.window.panes
    distinct = sum(a.function == "count_distinct" for a in rule.aggregates)
    size = panes * (_BYTES_PER_PANE * len(rule.aggregates) + _BYTES_PER_DISTINCT * distinct)
    kept = format_count(len(rule.aggregates), "aggregate")
    note = f"{_WHAT[type(rule.window)](panes)}, {kept}, about {size} bytes a busy key"
    if distinct:
        note += ", more with every distinct value"
    return RuleCost(rule.rule.id, None, panes, size, panes <= _MANY_PANES, note + _final_note(rule))


def _final_note(rule: CompiledRule) -> str:
    if rule.rule.emit is not Emit.FINAL:
        return ""
    if isinstance(rule.window, EventCountWindow):
        return "; looked at only when a window is whole"
    return "; every key of a window is looked at when it ends"


_WHAT: Final[Mapping[type, Callable[[int], str]]] = {
    TimeWindow: lambda panes: f"{format_count(panes, 'pane')} a window",
    SessionWindow: lambda _: "one entry a session",
    EventCountWindow: lambda panes: f"{format_count(panes, 'piece')} a window, kept until the key is idle for 30 days",
}


#: By kind of document: what makes it shorter.
_SHORTER: Final = dict.fromkeys(("rule", "policy"), "; shorten its tests")
_MANY_PANES: Final = 400
#: What is further back counts less than a thirtieth.
_HALF_LIVES: Final = 5


def _absence_cost(rule: CompiledRule) -> RuleCost:
    assert rule.absence is not None
    assert rule.plan is not None
    whose = "seen" if rule.absence.listed is None else f"of list {rule.absence.listed}"
    note = f"about {_BYTES_PER_EXPECTED} bytes a key that is {whose}; the event is {_ACCESS_NOTES[rule.plan.access]}"
    if rule.absence.listed is None and rule.absence.forget_ms is None:
        note += "; keys are never forgotten: `forget` would bound them"
    cheap = rule.plan.access not in (AccessPath.SCAN, AccessPath.ALL)
    return RuleCost(rule.rule.id, rule.plan.access, 0, _BYTES_PER_EXPECTED, cheap, note)


def _score_cost(rule: CompiledRule) -> RuleCost:
    assert rule.score is not None
    kept = render_duration(rule.score.within_ms)
    rules = format_count(len(rule.score.weights), "rule")
    note = f"about {_BYTES_PER_SIGNAL} bytes for each signal of {rules} within {kept}"
    note += "; matches of those that are event rules are looked up once more"
    return RuleCost(rule.rule.id, None, 0, 0, True, note)


def _feature_cost(rule: CompiledRule) -> RuleCost:
    assert rule.plan is not None
    panes = sum(one.panes for one in rule.features if one.function not in LATEST_FUNCTIONS | VALUE_FUNCTIONS)
    size = panes * _BYTES_PER_PANE + _BYTES_PER_LATEST * sum(one.function in LATEST_FUNCTIONS for one in rule.features)
    note = f"{format_count(len(rule.features), 'feature')}, about {size} bytes a busy key"
    if any(one.function in VALUE_FUNCTIONS for one in rule.features):
        note += f", and {_BYTES_PER_LATEST} with every value that `seen` and `count_distinct` remember"
    note += f"; the condition is {_ACCESS_NOTES[rule.plan.access]}"
    if rule.other_keys:
        keys = " and ".join(f"[{', '.join(key)}]" for key in sorted(rule.other_keys))
        note += f"; features of {keys} need an app with `feature_stage: true`"
    return RuleCost(rule.rule.id, rule.plan.access, panes, size, panes <= _MANY_PANES, note)


def _sequence_cost(rule: CompiledRule) -> RuleCost:
    assert rule.sequence is not None
    access, size = rule.sequence.access, rule.sequence.bytes_per_partial
    cheap = access not in (AccessPath.SCAN, AccessPath.ALL)
    note = f"{rule.sequence.note}; {_ACCESS_NOTES[access]}"
    if rule.sequence.automaton.iterative and rule.rule.skip is not Skip.NONE:
        longest = render_duration(rule.sequence.span_ms)
        note += f"; an alert waits while a partial match that began before it may go on, up to {longest}: `skip: none` "
        note += "with `suppress` alerts at once"
    return RuleCost(rule.rule.id, access, 0, size, cheap, note)


_BY_KIND: Final[Mapping[RuleKind, Callable[[CompiledRule], RuleCost]]] = {
    RuleKind.FEATURE: _feature_cost,
    RuleKind.SEQUENCE: _sequence_cost,
    RuleKind.ABSENCE: _absence_cost,
    RuleKind.SCORE: _score_cost,
}
