"""The part of `headgate rules check` about decision policies: their problems, and rules that take no part in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rulecore.alerts.decisions import DecisionCause
from rulecore.check import find_excess, locate_error
from rulecore.compile.decision_policy import CompiledPolicy, compile_policy
from rulecore.compile.rule import RuleLimits
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.features import EventOrder
from rulecore.documents.loading import LoadedPolicy, LoadedRule
from rulecore.documents.rule import Emit, Rule, RuleKind, RuleMode
from rulecore.documents.windows import CountSpec
from rulecore.documents.yaml_reader import PathKey, Problem, dotted_path
from rulecore.errors import RuleError
from rulecore.streams import STREAM, stream_names
from rulecore.testing.rule_tests import DECISION_FIELDS
from streamcore.schema import StreamSchema

_AT_THE_WATERMARK = frozenset({RuleKind.SEQUENCE, RuleKind.ABSENCE, RuleKind.SCORE})


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """Problems by file and position, the policies without problems, and warnings about rules."""

    problems: tuple[Problem, ...] = ()
    policies: tuple[CompiledPolicy, ...] = ()
    warnings: tuple[Problem, ...] = ()


def check_policies(
    documents: Sequence[LoadedPolicy],
    rules: Sequence[LoadedRule],
    streams: Mapping[str, StreamSchema],
    limits: RuleLimits | None = None,
) -> PolicyReport:
    """Check decision policies against the streams and each other, and rules against the policies of their streams."""
    limits = limits or RuleLimits()
    problems = [problem for loaded in documents for problem in loaded.problems]
    policies: list[CompiledPolicy] = []
    taken: dict[str, LoadedPolicy] = {}
    for loaded in documents:
        if loaded.policy is None:
            continue
        problems += [*_compile(loaded, streams, limits, policies), *_repeated(loaded, taken)]
    by_stream = {stream: policy for policy in policies for stream in policy.streams}
    warnings = list[Problem]()
    for one in rules:
        if one.rule is not None:
            own = {by_stream[name].name: by_stream[name] for name in stream_names(one.rule.on) if name in by_stream}
            warnings += [warning for policy in own.values() for warning in _warn(one, one.rule, policy)]
    valid = [one.rule for one in rules if one.rule is not None]
    for loaded in documents:
        if loaded.policy is not None and loaded.policy.on:
            problems += _check_tests(loaded, loaded.policy, valid, streams)
            warnings += _warn_without_rules(loaded, loaded.policy, valid)
    return PolicyReport(tuple(sorted(problems)), () if problems else tuple(policies), tuple(sorted(warnings)))


def _compile(
    loaded: LoadedPolicy, streams: Mapping[str, StreamSchema], limits: RuleLimits, policies: list[CompiledPolicy]
) -> Iterable[Problem]:
    """Add the compiled policy to ``policies``, or yield its problem."""
    document, policy = loaded.document, loaded.policy
    assert policy is not None, "its document has no problems"
    name = policy.decision_policy
    if (problem := find_excess(encode_policy(policy), limits, document, "policy", name)) is not None:
        yield problem
        return
    try:
        policies.append(compile_policy(policy, streams, limits))
    except RuleError as error:
        yield locate_error(error, document, name)


def _repeated(loaded: LoadedPolicy, taken: dict[str, LoadedPolicy]) -> Iterable[Problem]:
    """Yield a problem for a name or a stream that another policy has."""
    document, policy = loaded.document, loaded.policy
    assert policy is not None, "its document has no problems"
    fields = [("decision_policy", f"the name {policy.decision_policy!r}", f"name {policy.decision_policy}")]
    fields += [("on", f"the stream {name!r}", f"stream {name}") for name in stream_names(policy.on)]
    for field, what, key in fields:
        other = taken.setdefault(key, loaded)
        if other is not loaded:
            message = f"{what} is taken by {other.document.file}:{other.document.place(()).line}"
            if field == "on":
                message += "; a stream has one policy: make one document of the two, or name only one of the files"
            yield Problem(document.file, document.place((field,)), field, message, policy.decision_policy)


def _warn(loaded: LoadedRule, rule: Rule, policy: CompiledPolicy) -> Iterable[Problem]:
    """Yield warnings for the author of a rule on the policy's stream."""
    document, order = loaded.document, policy.policy.decide.order
    place = document.place(("then",))
    if fires_at_watermark(rule):
        when = "at the alerts of other rules" if rule.kind is RuleKind.SCORE else "when the watermark passes"
        message = f"fires {when}, so it is in no decision of {policy.name}; its alerts stand alone"
        yield Problem(document.file, place, "then", message, rule.id)
    elif rule.then.outcome is not None and rule.then.outcome not in order:
        message = (
            f"{rule.then.outcome} is no outcome of decision policy {policy.name} ({', '.join(order)}), "
            "so only the score counts"
        )
        yield Problem(document.file, document.place(("then", "outcome")), "then.outcome", message, rule.id)


def _warn_without_rules(loaded: LoadedPolicy, policy: DecisionPolicy, rules: Sequence[Rule]) -> Iterable[Problem]:
    """Yield a warning for a policy of whose streams no rule is among the files."""
    if not _reading(policy, rules):
        message = f"no rule among these files is on {' or '.join(stream_names(policy.on))}, so nothing is merged"
        yield Problem(loaded.document.file, loaded.document.place(("on",)), "on", message, policy.decision_policy)


def _reading(policy: DecisionPolicy, rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that read a stream of the policy."""
    names = {*stream_names(policy.on)}
    return [rule for rule in rules if names & {*stream_names(rule.on)}]


def _check_tests(
    loaded: LoadedPolicy, policy: DecisionPolicy, rules: Sequence[Rule], streams: Mapping[str, StreamSchema]
) -> Iterable[Problem]:
    """Yield names in tests that nothing has: such a test fails, or passes, for the wrong reason."""
    schemas = [streams[name] for name in stream_names(policy.on) if name in streams]
    events = {name for schema in schemas for name in schema.names} | ({STREAM} if len(schemas) > 1 else set())
    fields = DECISION_FIELDS.union(*(key for schema in schemas for key in schema.keys))
    outcomes = policy.decide.order
    known: dict[str, Collection[str]] = {"outcome": outcomes, "band": outcomes, "cause": [*DecisionCause]}
    if reading := [rule.id for rule in _reading(policy, rules)]:  # else the warning about that says enough
        known |= {"rules": reading, "shadow": reading}
    found: list[tuple[PathKey, str, Collection[str]]] = []
    for number, test in enumerate(policy.tests):
        for place, row in enumerate(test.events):
            found += [(("tests", number, "events", place, name), name, events) for name in row]
        for place, row in enumerate(test.expect):
            at = ("tests", number, "expect", place)
            found += [((*at, name), name, fields) for name in row]
            for name in known.keys() & row.keys():
                value = row[name]
                values = value if isinstance(value, list) else [value]
                found += [((*at, name), str(one), known[name]) for one in values if one is not None]
    document = loaded.document
    for path, name, there in found:
        if name not in there:
            message = f"there is no {name}; there are {', '.join(sorted(there)) or 'none'}"
            yield Problem(document.file, document.place(path), dotted_path(path[:-1]), message, policy.decision_policy)


def fires_at_watermark(rule: Rule) -> bool:
    """Return whether the rule fires at no event: at the watermark, or at the alerts of other rules."""
    if rule.kind is RuleKind.WINDOW:
        return rule.emit is Emit.FINAL and not isinstance(rule.within, CountSpec)
    return rule.kind in _AT_THE_WATERMARK or rule.order is EventOrder.IN_ORDER


def enters_decisions(rule: Rule) -> bool:
    """Return whether decisions merge the rule where it is evaluated: it fires at events, and is live, shadow or a
    canary."""
    return rule.status in (RuleMode.LIVE, RuleMode.SHADOW, RuleMode.CANARY) and not fires_at_watermark(rule)


__all__: Sequence[str] = ("PolicyReport", "check_policies", "enters_decisions")
