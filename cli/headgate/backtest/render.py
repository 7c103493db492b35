"""The output forms of a back-test's result: a table for users, a document for programs."""

from __future__ import annotations

from decimal import Decimal

from headgate.backtest.run import BacktestResult
from headgate.console.output import Json
from headgate.console.tables import table
from headgate.time_arguments import show_minute, show_time
from rulecore.backtest.backtest import BacktestReport
from rulecore.backtest.compare import VersionDiffResult
from rulecore.backtest.counts import RuleCounts
from rulecore.backtest.decisions import DecisionCounts

_HEAD = ("RULE", "VERSION", "KIND", "ALERTS", "KEYS", "OF EVENTS", "INCOMPLETE", "FIRST", "LAST")
_NUMBERS = ("VERSION", "ALERTS", "KEYS", "OF EVENTS", "INCOMPLETE")


def as_text(result: BacktestResult) -> str:
    """Render a line about the events, the table, and notes for the reader."""
    report = result.report
    lines = [_summary_line(result), ""]
    lines += _comparison_table(report, result.side) if result.against is not None else _plain_table(report)
    if report.decisions is not None:
        lines += ["", *_decision_table(report.decisions, report.events)]
    lines += ["", *_notes(result)]
    return "\n".join(lines).rstrip()


def _summary_line(result: BacktestResult) -> str:
    report = result.report
    rate = f"{report.events / result.seconds:,.0f} events/s" if result.seconds else ""
    span = f", {show_time(report.first_ms)} to {show_time(report.last_ms)} UTC" if report.events else ""
    return f"{report.events:,} events of {result.source}{span}  ({result.seconds:.1f} s, {rate})"


def _plain_table(report: BacktestReport) -> list[str]:
    rows = [(name, *_new_columns(one, report.events)) for name, one in report.new.items()]
    return table(_HEAD, rows, _NUMBERS)


def _comparison_table(report: BacktestReport, side: str) -> list[str]:
    other = (side, f"{side} ALERTS", "BOTH", "ONLY NEW", f"ONLY {side}")
    names = [*report.new, *(name for name in report.live if name not in report.new)]
    rows = []
    for name in names:
        new, live, both = report.new.get(name), report.live.get(name), report.compared[name]
        own = _new_columns(new, report.events) if new is not None else ("-",) * 8
        rows.append((name, *own, *_live_columns(live), *_difference_columns(new, live, both)))
    return table((*_HEAD, *other), rows, (*_NUMBERS, *other))


def _decision_table(counts: DecisionCounts, events: int) -> list[str]:
    """Return a line for each move between outcomes, or for each outcome without another policy."""
    new, live = counts.new, counts.live
    names = f"{new.decision_policy} v{new.version}"
    summed = [] if counts.summed is None else [f"SUM OF {counts.summed}"]
    head = [*([] if live is None else [f"{live.decision_policy} v{live.version}"]), names, "EVENTS", "SHARE", *summed]
    rows = [
        (
            *([] if live is None else [str(move.live)]),
            move.new + (" *" if live is not None and move.live != move.new else ""),
            f"{move.events:,}",
            f"{100 * move.events / events:.2f} %",
            *([] if counts.summed is None else [_sum_text(move.total)]),
        )
        for move in counts.moves
    ]
    lines = ["decisions", *table(head, rows, ("EVENTS", "SHARE", *summed))]
    lines += ["* would be decided otherwise"] if any("*" in row[1] for row in rows) else []
    before = "" if counts.live_records is None else f", {counts.live_records:,} with the other policy"
    return [*lines, f"{counts.records:,} of {events:,} events would have a decision record{before}"]


def _sum_text(total: Decimal | float | None) -> str:
    return "-" if total is None else f"{total:,}"


def _new_columns(one: RuleCounts, events: int) -> tuple[str, ...]:
    """Return the cells of the columns from VERSION to LAST, for the rule of the back-test."""
    share = f"{100 * one.hits / events:.2f} %" if one.hits else "-"
    keys = f"{one.keys:,}" if one.keys_exact else f">{one.keys:,}"
    incomplete = f"{one.incomplete:,}" if one.incomplete else "-"
    times = show_minute(one.first_ms), show_minute(one.last_ms)
    return str(one.version), one.kind, f"{one.hits:,}", keys, share, incomplete, *times


def _live_columns(one: RuleCounts | None) -> tuple[str, str]:
    """Return the version of the rule on the other side, and its alerts."""
    return ("-", "-") if one is None else (f"v{one.version}", f"{one.hits:,}")


def _difference_columns(
    new: RuleCounts | None, live: RuleCounts | None, both: VersionDiffResult
) -> tuple[str, str, str]:
    """Return the alerts of both sides, of the new one alone and of the other one alone."""
    if new is None or live is None:
        return "-", "-", "-"
    return f"{both.both:,}", f"{both.only_new:,}", f"{both.only_live:,}"


def _notes(result: BacktestResult) -> list[str]:
    report = result.report
    notes = [
        f"{name}: not evaluated to the end: {one.failure_reason}"
        for name, one in report.new.items()
        if one.failure_reason
    ]
    notes += [
        f"{name}: live version failed: {one.failure_reason}" for name, one in report.live.items() if one.failure_reason
    ]
    if report.late:
        notes.append(f"{report.late:,} events were late: only event rules evaluated them (see --disorder)")
    if report.duplicates:
        notes.append(f"{report.duplicates:,} events are duplicates of earlier ones and do not count")
    if any(one.incomplete for one in report.new.values()):
        notes.append("incomplete: before the first event there may have been others that count for these alerts")
    if any(one.forgotten for one in report.compared.values()):
        notes.append(
            f"too many alerts waited for their partner: some of ONLY NEW and ONLY {result.side} may be of both"
        )
    if report.dead_letters:
        notes.append(f"{sum(report.dead_letters.values()):,} records are no events of {result.stream}:")
        notes += [
            f"  {count:>9,}  {reason}" for reason, count in sorted(report.dead_letters.items(), key=lambda p: -p[1])
        ]
    if result.against is not None:
        silent = [name for name in report.new if name not in report.live]
        notes.append(f"compared with {result.against}" + (f"; not there: {', '.join(silent)}" if silent else ""))
    return [*notes, *result.notes]


def as_json(result: BacktestResult) -> Json:
    """Return the JSON of the result."""
    report = result.report
    names = [*report.new, *(name for name in report.live if name not in report.new)]
    rules: list[Json] = []
    for name in names:
        new, live = report.new.get(name), report.live.get(name)
        entry: dict[str, Json] = {"rule": name, "new": _counts_json(new, report.events)}
        if result.against is not None:
            both = report.compared[name]
            entry |= {"live": _counts_json(live, report.events)}
            entry |= {"both": both.both, "only_new": both.only_new, "only_live": both.only_live}
        rules.append(entry)
    return {
        "events_of": result.source,
        "stream": result.stream,
        "events": report.events,
        "first_ms": report.first_ms,
        "last_ms": report.last_ms,
        "late": report.late,
        "duplicates": report.duplicates,
        "not_events": [{"reason": reason, "records": count} for reason, count in sorted(report.dead_letters.items())],
        "compared_with": result.against,
        "seconds": round(result.seconds, 3),
        "rules": rules,
        "decisions": None if report.decisions is None else _decisions_json(report.decisions),
        "notes": list(result.notes),
    }


def _decisions_json(counts: DecisionCounts) -> Json:
    new, live = (None if one is None else f"{one.decision_policy}@{one.version}" for one in (counts.new, counts.live))
    moves: list[Json] = []
    for move in counts.moves:
        total = format(move.total, "f") if isinstance(move.total, Decimal) else move.total
        moves.append({"live": move.live, "new": move.new, "events": move.events, "sum": total})
    records: Json = {"new": counts.records, "live": counts.live_records}
    return {"new": new, "live": live, "summed": counts.summed, "records": records, "moves": moves}


def _counts_json(one: RuleCounts | None, events: int) -> Json:
    if one is None:
        return None
    return {
        "version": one.version,
        "kind": one.kind,
        "alerts": one.hits,
        "keys": one.keys,
        "keys_exact": one.keys_exact,
        "share": one.hits / events if events else 0.0,
        "incomplete": one.incomplete,
        "first_ms": one.first_ms,
        "last_ms": one.last_ms,
        "failed": one.failure_reason,
    }
