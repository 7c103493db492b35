"""The expected alerts of the rules of the tests, in plain Python over lists, without code of the product.

A rule is written twice: as the document that the app gets, and as Python functions that mean the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from tests.harness.apps.orders import Order, Sent

Alert = Mapping[str, object]
#: An aggregate's text in the rule -> its value over the window's events.
Figures = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RuleUnderTest:
    """``document``: what is published. The rest: its meaning. Per event when ``size_ms`` is 0."""

    document: Mapping[str, object]
    where: Callable[[Order], bool]
    size_ms: int = 0
    slide_ms: int = 0
    figures: Callable[[Sequence[Order]], Figures] = lambda _: {}
    having: Callable[[Figures], bool] = lambda _: False

    @property
    def id(self) -> str:
        """Return the rule's id."""
        return str(self.document["id"])

    @property
    def value(self) -> bytes:
        """Return the control record's value."""
        return json.dumps(self.document).encode()


@dataclass(slots=True)
class Oracle:
    """All alerts that these rules must give for these events, which are on time and in order for each user.

    ``live`` says whether an early rule, or one per event, was evaluated at an event; it counts the event in any case.
    """

    rules: Sequence[RuleUnderTest]
    live: Callable[[RuleUnderTest, Sent], bool] = lambda rule, sent: True
    alerts: list[Alert] = field(default_factory=list)

    def run(self, sent: Iterable[Sent]) -> list[Alert]:
        """Return the alerts, in no particular order. Every window is taken to have ended."""
        events = list(sent)
        for rule in self.rules:
            matching = [s for s in events if rule.where(s.order)]
            if not rule.size_ms:
                self.alerts += [_per_event(rule, s) for s in matching if self.live(rule, s)]
            elif rule.document.get("emit") == "final":
                self._final(rule, matching)
            else:
                self._early(rule, matching)
        return self.alerts

    def _early(self, rule: RuleUnderTest, matching: Sequence[Sent]) -> None:
        """Add the alerts of an early rule. Events are in order: each fires only the window that ends with its pane."""
        seen: dict[str | None, list[Sent]] = defaultdict(list)
        fired = set()
        for sent in matching:
            user = sent.order.user
            seen[user].append(sent)
            end = (sent.order.ts // rule.slide_ms + 1) * rule.slide_ms
            inside = [s.order for s in seen[user] if end - rule.size_ms <= s.order.ts < end]
            figures = rule.figures(inside)
            if (user, end) not in fired and self.live(rule, sent) and rule.having(figures):
                fired.add((user, end))
                self.alerts.append(_windowed_alert(rule, user, end, figures, sent))

    def _final(self, rule: RuleUnderTest, matching: Sequence[Sent]) -> None:
        windows: dict[tuple[str | None, int], list[Order]] = defaultdict(list)
        for sent in matching:
            first = (sent.order.ts // rule.slide_ms + 1) * rule.slide_ms
            for end in range(first, first + rule.size_ms, rule.slide_ms):
                windows[sent.order.user, end].append(sent.order)
        for (user, end), inside in windows.items():
            figures = rule.figures(inside)
            if rule.having(figures):
                self.alerts.append(_windowed_alert(rule, user, end, figures, None))


def total(amounts: Iterable[Decimal | None]) -> Decimal | None:
    """Return ``sum`` of SQL: without NULLs; NULL if there are no values."""
    known = [a for a in amounts if a is not None]
    return sum(known, Decimal("0.00")) if known else None


def rows(alerts: Iterable[Alert]) -> list[str]:
    """Return alerts as sorted lines, without what depends on how the input was cut: the epoch of the rule set, and the
    decision, whose id has the version of its policy."""
    cut = ("rules_epoch", "decision_id")
    return sorted(json.dumps({k: v for k, v in a.items() if k not in cut}, sort_keys=True) for a in alerts)


def _identity(parts: Sequence[object]) -> str:
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _common(rule: RuleUnderTest, identity: Sequence[object], message: str) -> dict[str, object]:
    then = rule.document["then"]
    assert isinstance(then, dict)
    return {
        "alert_id": _identity([rule.id, rule.document["version"], *identity]),
        "rule": rule.id,
        "version": rule.document["version"],
        "mode": rule.document.get("mode", "live"),
        "stream": rule.document["on"],
        "severity": then["severity"],
        "outcome": then.get("outcome", "review"),
        "score": then.get("score", 0),
        "message": message,
        "incomplete": False,
    }


def _source(sent: Sent) -> dict[str, object]:
    return {"topic": sent.topic, "partition": sent.partition, "offset": sent.offset}


def _per_event(rule: RuleUnderTest, sent: Sent) -> Alert:
    order = sent.order
    message = f"{order.kind} of {'null' if order.amount is None else order.amount} by {order.user}"
    return _common(rule, [sent.topic, sent.partition, sent.offset], message) | {
        "kind": "event",
        "key": {"user": order.user},
        "window": None,
        "timing": None,
        "event_time_ms": order.ts,
        "values": {},
        "source": _source(sent),
    }


def _windowed_alert(rule: RuleUnderTest, user: str | None, end: int, figures: Figures, sent: Sent | None) -> Alert:
    start = end - rule.size_ms
    values = {text: str(value) if isinstance(value, Decimal) else value for text, value in figures.items()}
    return _common(rule, [[user], start, end], f"{user}") | {
        "kind": "window",
        "key": {"user": user},
        "window": {"start_ms": start, "end_ms": end},
        "timing": "final" if sent is None else "early",
        "event_time_ms": end if sent is None else sent.order.ts,
        "values": values,
        "source": None if sent is None else _source(sent),
    }
