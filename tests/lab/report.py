"""The figures of a campaign as text."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.lab.result import RoundResult
from tests.lab.start_times import PARTS

_NUMBERS = re.compile(r"\d{2,}|/\S+/")


def render(rounds: Sequence[RoundResult]) -> str:
    """Return the report of these rounds."""
    failed = [r for r in rounds if r.differences]
    total = {name: sum(getattr(r, name) for r in rounds) for name in ("events", "control", "versions", "expected")}
    total |= {name: sum(getattr(r, name) for r in rounds) for name in ("seen", "lost", "extra", "doubled")}
    faults = [fault for r in rounds for fault in r.faults]
    kinds = Counter(injected.fault.split()[0] for injected in faults)
    loads = [r.load for r in rounds]
    lines = [
        f"{len(rounds)} rounds in {sum(r.seconds for r in rounds) / 60:.0f} min, {len(failed)} failed; load "
        f"{min(loads, default=0)} to {max(loads, default=0)}",
        f"{total['events']} events; alerts: {total['expected']} expected, {total['seen']} seen, {total['lost']} lost, "
        f"{total['extra']} too many or wrong, {total['doubled']} ids twice",
        f"{total['control']} control records, {total['versions']} versions; "
        f"{kinds['kill']} kills, {kinds['pause']} pauses, {kinds['full']} full disks, {kinds['clock']} clock jumps, "
        f"{sum(len(r.starts) for r in rounds)} starts",
        "",
        f"{'fault':32} {'times':>5} {'median s':>9} {'95 % s':>7} {'max s':>7}",
    ]
    by_fault: dict[str, list[float | None]] = defaultdict(list)
    for injected in faults:
        by_fault[injected.fault].append(injected.recovery_s)
    for fault, every in sorted(by_fault.items()):
        known = [seconds for seconds in every if seconds is not None]
        lines.append(f"{fault:32} {len(every):5} {_figures(known)}")
    lines += ["", "seconds from a start to its", *_parts(rounds)]
    lines += sorted({f"skipped: {text}" for r in rounds for text in r.skipped})
    ends = Counter(_NUMBERS.sub("#", text) for r in rounds for text in r.ends)
    lines += [f"ended by itself {count} times {text}" for text, count in sorted(ends.items())]
    lines += [f"failed: {r.command}: {difference[:300]}" for r in failed for difference in r.differences]
    return "\n".join(lines)


def _parts(rounds: Sequence[RoundResult]) -> list[str]:
    """Return a line for each part of a start, of the starts that came to their first cut."""
    starts = [start for r in rounds for start in r.starts if "cut" in start]
    return [f"  {part:30} {len(starts):5} {_figures([s[part] for s in starts if part in s])}" for part in PARTS]


def _figures(seconds: Sequence[float]) -> str:
    if not seconds:
        return f"{'-':>9} {'-':>7} {'-':>7}"
    ordered = sorted(seconds)
    high = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return f"{statistics.median(ordered):9.2f} {high:7.2f} {ordered[-1]:7.2f}"
