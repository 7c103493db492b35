"""Compiles a decision policy: checks it against its streams, and computes what deciding needs.

Compiling is a pure function of the policy, the schemas and the limits, and raises nothing but ``RuleError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rulecore import language as lang
from rulecore.compile.conditions import NameScope, compile_condition
from rulecore.compile.rule import RuleLimits
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.errors import RuleSetError
from rulecore.language import Expr
from rulecore.streams import stream_names
from streamcore.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """A checked decision policy. ``wheres``: its condition by stream; empty without one. ``reads``: by stream, the
    fields that decisions need of an event."""

    policy: DecisionPolicy
    wheres: Mapping[str, Expr] = field(default_factory=dict)
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy.decision_policy

    def chooses(self, stream: str) -> bool:
        """Return whether it decides about events of a stream at which no rule fires."""
        return stream in self.wheres or bool(self.policy.share)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams about whose events it decides."""
        return stream_names(self.policy.on)


def compile_policy(policy: DecisionPolicy, streams: Mapping[str, StreamSchema], limits: RuleLimits) -> CompiledPolicy:
    """Check and compile a policy. Raise ``ExpressionError`` or ``RuleSetError`` if it is invalid."""
    names = stream_names(policy.on)
    if unknown := [name for name in names if name not in streams]:
        raise RuleSetError(f"on: there is no stream {unknown[0]}; there are {', '.join(sorted(streams))}")
    wheres = {} if policy.where is None else {name: _compile(policy.where, streams[name], limits) for name in names}
    reads = {name: _read_fields(streams[name], wheres.get(name)) for name in names}
    return CompiledPolicy(policy, wheres, reads)


def _compile(text: str, schema: StreamSchema, limits: RuleLimits) -> Expr:
    """Compile the condition over events of one stream. It knows no lists."""
    return compile_condition(text, "where", NameScope.of_stream(schema, {}, limits.expression)).expr


def _read_fields(schema: StreamSchema, where: Expr | None) -> frozenset[str]:
    own = {column for key in schema.keys for column in key}
    own |= {schema.event_id} if schema.event_id is not None else set()
    return frozenset(own | (set() if where is None else lang.columns(where)) & set(schema.names))
