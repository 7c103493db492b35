"""The text form of an explanation: whether the rule fired and why, then its conditions as aligned trees.

Colours go through ``click.style``; click omits them when stdout is no terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from headgate.console.output import Json
from headgate.console.tables import table
from headgate.explain.query import ExplainResult
from headgate.time_arguments import show_time
from rulecore.explain.condition import Clause, ObservedValue, Truth
from rulecore.explain.explanation import (
    EventTrace,
    Explanation,
    MatchTrace,
    PartialTrace,
    ScoreTrace,
    WindowTrace,
    alerts_in,
)

_COLOURS = {Truth.TRUE: "green", Truth.FALSE: "red", Truth.NULL: "yellow"}
_TEXT = 72  # characters of a clause in a tree
_VALUES = 100  # and of the values beside it


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a tree: ``text`` is the clause with the branches before it."""

    text: str
    clause: Clause


def as_text(result: ExplainResult) -> str:
    """Render the whole explanation; the first line says whether the rule fired."""
    explanation = result.explanation
    lines = [_headline(result), f"  {explanation.verdict}"]
    lines += [f"  {line}" for line in _compare_with_published(result)]
    for one in result.reasons:
        label = click.style(one.name, fg="magenta", bold=True)
        lines.append(f"  {label}: {one.text}")
    if explanation.event is not None:
        lines += ["", *_render_event(explanation.event)]
    for window in explanation.windows:
        lines += ["", *_render_window(window, explanation)]
    for match in explanation.matches:
        lines += ["", *_render_match(match)]
    for partial in explanation.partials:
        lines += ["", *_render_partial(partial)]
    for score in explanation.scores:
        lines += ["", *_render_score(score)]
    if explanation.event is None or explanation.rule.group_by:
        lines += _render_event_counts(explanation)
    lines += _render_alerts(explanation)
    if any("*" in line for line in lines):
        lines += ["", click.style("* this clause decided", dim=True)]
    lines += [""] * bool(result.notes) + [click.style(note, dim=True) for note in result.notes]
    return "\n".join(lines)


def _headline(result: ExplainResult) -> str:
    """Return the rule, the event or key in question, and whether the rule fired."""
    rule = result.explanation.rule.rule
    silent = any(one.decisive for one in result.reasons)
    fired = result.explanation.fired and not silent
    word = click.style("FIRED" if fired else "DID NOT FIRE", fg="green" if fired else "red", bold=True)
    mode = "" if rule.mode_text == "live" else f", {rule.mode_text}"
    name = click.style(f"{rule.id} version {rule.version}", bold=True)
    return f"{name} ({rule.kind}{mode}) on {result.about}: {word}"


def _compare_with_published(result: ExplainResult) -> Iterator[str]:
    """Yield whether the recomputed alert equals the published one, and the position of its record."""
    if result.alert is not None:
        if result.same:
            yield f"recomputed: the same alert, {result.alert['alert_id']}"
        else:
            yield click.style("recomputed: not the same", fg="red")
            yield from (f"  {line}" for line in result.differences)
        if (decision := result.alert.get("decision_id")) is not None:
            yield f"the decision about its event: headgate rules explain {decision}"
    if result.published is not None:
        found = result.published
        yield f"its alert is {(found.key or b'').decode()} at {found.topic}:{found.partition}:{found.offset}"


# --- clauses ----------------------------------------------------------------------------------------------------


def tree(name: str, clause: Clause) -> list[str]:
    """Render a condition as an aligned tree: text, truth (``*``: this clause decided), values."""
    rows = [*_tree_lines(clause, "", "", name)]
    width = max(len(row.text) for row in rows)
    return [_render_line(row, width) for row in rows]


def _tree_lines(clause: Clause, lead: str, branch: str, name: str = "") -> Iterator[_Line]:
    label = f"{name}: " if name else ""
    words = {"and": "all of", "or": "any of", "not": "not"}
    text = words[clause.joint] if clause.joint else _shorten(clause.text, _TEXT)
    yield _Line(f"{lead}{branch}{label}{text}", clause)
    inner = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
    for number, part in enumerate(clause.parts, 1):
        yield from _tree_lines(part, inner, "└─ " if number == len(clause.parts) else "├─ ")


def _render_line(row: _Line, width: int) -> str:
    clause = row.clause
    word = f"{clause.truth}*" if clause.decided and not clause.parts else clause.truth.value
    truth = click.style(word, fg=_COLOURS[clause.truth], bold=clause.decided) + " " * (6 - len(word))
    text = f"{row.text:{width}}"
    shown = _shorten(", ".join(map(str, clause.seen)), _VALUES)
    if clause.note and not (len(clause.seen) == 1 and clause.seen[0].value is None):
        shown = f"{shown}  ({clause.note})" if shown else clause.note
    line = f"  {text if clause.decided else click.style(text, dim=True)}  {truth}  {shown}"
    return line.rstrip()


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


# --- events and windows -----------------------------------------------------------------------------------------


def _render_event(event: EventTrace) -> list[str]:
    """Render the position and time of an event, and each condition on it as a tree."""
    origin = event.origin
    lines = [f"event {origin.topic}:{origin.partition}:{origin.offset} of {show_time(origin.event_ms)} UTC"]
    names = event.conditions
    for name, clause in names.items():
        lines += tree(name, clause)
    if not names:
        lines.append("  the rule has no condition on single events")
    read = dict.fromkeys(seen.text for clause in names.values() for seen in _observed_values(clause))
    lines += [f"  {name} is {event.places[name]} in the record" for name in read if name in event.places]
    return lines


def _render_window(window: WindowTrace, explanation: Explanation) -> list[str]:
    """Render a window as of one of its events or its end: its `having` as a tree, and the alerts in it so far."""
    span = f"{show_time(window.start_ms)} to {show_time(window.end_ms)} UTC"
    when = "at its end" if window.row is None else f"after its event of {show_time(window.time_ms)}"
    lines = [f"window {span}, {when}", *tree("having", window.having)]
    extra = [seen for seen in window.seen if all(seen.text != s.text for s in _observed_values(window.having))]
    lines += [f"  {seen}" for seen in extra]
    earlier = alerts_in(window, explanation.alerts)
    lines += [f"  fired {_firing_text(alert)}" for alert in earlier] or ["  has not fired in it"]
    return lines


def _render_match(match: MatchTrace) -> list[str]:
    """Render the events of a match of a sequence, and the condition of the step that took each as a tree."""
    what = "timed-out match" if match.timed_out else "match"
    lines = [f"{what} from {show_time(match.start_ms)} to {show_time(match.end_ms)} UTC"]
    for event in match.events:
        lines += [f"  {line}" for line in _render_event(event)]
    return lines


def _render_partial(partial: PartialTrace) -> list[str]:
    """Render how far a beginning of a sequence came, and the events that came closest to going on."""
    span = f"{show_time(partial.start_ms)} to {show_time(partial.end_ms)} UTC"
    waited = " or ".join(partial.waited_for) or "a quiet time"
    lines = [f"partial match from {span} waited for {waited}; {partial.ended}" if partial.events else "no match began"]
    for event in partial.events:
        lines += [f"  {line}" for line in _render_event(event)]
    lines += ["  closest to it:"] * bool(partial.missed)
    for event in partial.missed:
        lines += [f"    {line}" for line in _render_event(event)]
    return lines


def _render_score(score: ScoreTrace) -> list[str]:
    """Render a sum, and each signal in its window with its points, its event and its alert."""
    span = f"{show_time(score.start_ms)} to {show_time(score.end_ms)} UTC"
    missing = f", {score.limit - score.total:,} too few" if score.total < score.limit else ""
    shown = f", the last {len(score.signals)}" if len(score.signals) < score.count else ""
    lines = [f"score {score.total:,} of {score.limit:,}{missing}: {score.count:,} signals{shown}, {span}"]
    rows = [
        (
            f"{one.points:,}" if one.counts else f"({one.points:,})",
            f"{one.rule}@{one.version}",
            show_time(one.time_ms),
            "-" if one.place is None else "{topic}:{partition}:{offset}".format(**one.place),
            one.alert_id or "gives no alert",
            one.message,
        )
        for one in score.signals
    ]
    lines += [f"  {line}" for line in table(("POINTS", "RULE", "TIME (UTC)", "EVENT", "ALERT", "MESSAGE"), rows)]
    if not all(one.counts for one in score.signals):
        lines.append(click.style("  in parentheses: not added, the best match of each rule counts", dim=True))
    return lines


def _observed_values(clause: Clause) -> list[ObservedValue]:
    """Return the values of all leaves of the clause."""
    return [seen for leaf in clause.leaves() for seen in leaf.seen]


def _firing_text(alert: Mapping[str, Json]) -> str:
    """Return the event that fired the alert, or the end of its window, with the time."""
    source = alert["source"]
    at = show_time(int(str(alert["event_time_ms"])))
    if not isinstance(source, dict):
        return f"when it ended, at {at} UTC"
    return f"at {source['topic']}:{source['partition']}:{source['offset']} of {at} UTC"


def _render_event_counts(explanation: Explanation) -> list[str]:
    """Return the number of events that counted, and the latest of them; when none did, the condition that failed."""
    rule = explanation.rule.rule
    if not explanation.looked_at:
        return ["", "no events of this key were found"]
    what = "where" if rule.group_by and rule.within is not None and rule.sequence is None else "a condition"
    lines = ["", f"{explanation.satisfied:,} of the key's {explanation.looked_at:,} events satisfied {what}"]
    if explanation.rejected:
        rows = [(f"{one.events:,}", one.clause) for one in explanation.rejected]
        lines += [f"  {line}" for line in table(("REJECTED", "CLAUSE"), rows, ("REJECTED",))]
    if explanation.events and not explanation.windows:
        held = [
            (_position_text(event), show_time(event.origin.event_ms), _satisfied_names(event))
            for event in explanation.events
        ]
        width = 3 if any(names for *_, names in held) else 2  # a score rule has no condition on events
        head = ("EVENT", "TIME (UTC)", "SATISFIES")[:width]
        lines += [f"  {line}" for line in table(head, [row[:width] for row in held])]
    return lines


def _position_text(event: EventTrace) -> str:
    return f"{event.origin.topic}:{event.origin.partition}:{event.origin.offset}"


def _satisfied_names(event: EventTrace) -> str:
    return ", ".join(name for name, clause in event.conditions.items() if clause.truth is Truth.TRUE)


def _render_alerts(explanation: Explanation) -> list[str]:
    """Render the alerts that the kernel computes, the latest last."""
    if not explanation.alerts:
        return []
    shown = explanation.alerts[-5:]
    more = f", the last {len(shown)}" if len(shown) < len(explanation.alerts) else ""
    lines = ["", f"alerts over these events: {len(explanation.alerts)}{more}"]
    rows = [(str(a["alert_id"]), show_time(int(str(a["event_time_ms"]))), str(a["message"])) for a in shown]
    return lines + [f"  {line}" for line in table(("ALERT", "TIME (UTC)", "MESSAGE"), rows)]
