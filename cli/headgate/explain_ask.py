"""An explanation that is asked for and one that is given, as values; and what every way to one has in common."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import InputError
from headgate.login import Login
from headgate.moments import parse_time
from rulecore.compiled import CompiledRule
from rulecore.explanation import Circumstance, Explanation
from rulecore.yamldoc import Json

if TYPE_CHECKING:  # an explanation from files reads nothing
    from headgate.explain_reading import Found
    from streamcore.kafka.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Ask:
    """What the command was asked."""

    target: str
    event: str | None
    event_json: Path | None
    key: tuple[str, ...]
    at: str | None
    rules: Path | None
    streams: Path | None
    lists: Path | None
    topic: str | None
    login: Login
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
class Answer:
    """``alert``: the one that was asked about, as it was published, and ``same``: whether it came out again.

    ``published``: where the alert that the explanation gives was found. ``notes``: what the answer rests on.
    """

    explanation: Explanation
    about: str
    circumstances: tuple[Circumstance, ...]
    notes: tuple[str, ...]
    alert: Mapping[str, Json] | None = None
    differences: tuple[str, ...] = ()
    published: Found | None = None

    @property
    def same(self) -> bool | None:
        """Whether the recomputed alert is the published one; None when none was asked about."""
        return None if self.alert is None else not self.differences


def known_rule(target: str, rules: Mapping[str, CompiledRule]) -> CompiledRule:
    """The rule of a name; ``InputError`` says which there are."""
    if target in rules:
        return rules[target]
    near = difflib.get_close_matches(target, rules, 3)
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(rules)[:10]) or 'none'}"
    raise InputError(f"no rule {target!r}: {hint}")


def support_of(rule: CompiledRule, known: Mapping[str, CompiledRule]) -> tuple[CompiledRule, ...]:
    """The rules whose scores a rule adds."""
    signals = rule.rule.score.of if rule.rule.score is not None else ()
    return tuple(known[name] for name in signals if name in known)
