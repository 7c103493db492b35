"""The query and the result of an explanation as values, and the common part of every way to explain."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.time_arguments import parse_time
from rulecore.compile.rule import CompiledRule
from rulecore.documents.yaml_reader import Json
from rulecore.explain.explanation import Explanation, RuleReason

if TYPE_CHECKING:  # an explanation from files reads nothing
    from headgate.explain.kafka_reader import KafkaRecord
    from streamcore.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """The request of the command."""

    target: str
    event: str | None
    event_json: Path | None
    key: tuple[str, ...]
    at: str | None
    rules: Path | None
    streams: Path | None
    lists: Path | None
    topic: str | None
    login: KafkaLogin
    app: str
    scan: int
    now_ms: int

    @property
    def kafka(self) -> KafkaSettings:
        """How to reach it."""
        return self.login.settings("headgate-explain")

    @property
    def rule(self) -> tuple[str, int | None]:
        """The rule's id and, where one was named (``ID@VERSION``), its version."""
        name, _, version = self.target.partition("@")
        return (name, int(version)) if version.isdecimal() else (self.target, None)

    @property
    def at_ms(self) -> int | None:
        """The time that is asked about."""
        return None if self.at is None else parse_time(self.at, self.now_ms, "--at")

    @property
    def is_alert(self) -> bool:
        """Whether the target is an alert's id."""
        return len(self.target) == 32 and set(self.target) <= set("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """``alert``: the one that was asked about, as it was published, and ``same``: whether it came out again.

    ``published``: where the alert that the explanation gives was found. ``notes``: the basis of the answer.
    """

    explanation: Explanation
    about: str
    circumstances: tuple[RuleReason, ...]
    notes: tuple[str, ...]
    alert: Mapping[str, Json] | None = None
    differences: tuple[str, ...] = ()
    published: KafkaRecord | None = None

    @property
    def same(self) -> bool | None:
        """Whether the recomputed alert is the published one; None when none was asked about."""
        return None if self.alert is None else not self.differences


def known_rule(target: str, rules: Mapping[str, CompiledRule]) -> CompiledRule:
    """Return the rule of a name; ``InputError`` suggests existing ones."""
    if target in rules:
        return rules[target]
    near = difflib.get_close_matches(target, rules, 3)
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(rules)[:10]) or 'none'}"
    raise InputError(f"no rule {target!r}: {hint}")


def signal_rules(rule: CompiledRule, known: Mapping[str, CompiledRule]) -> tuple[CompiledRule, ...]:
    """Return the rules whose scores a rule adds."""
    signals = rule.rule.score.of if rule.rule.score is not None else ()
    return tuple(known[name] for name in signals if name in known)
