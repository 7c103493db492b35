"""An app at a glance: its process, its figures, and the matters that need a person, the worst first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from headgate.web.state.app_reader import Snapshot
from headgate.web.state.dead_letters import DeadLetterReader
from headgate.web.state.lanes.alert_rate import AlertRate
from headgate.web.state.rule_views import find_answer, list_versions, read_change
from headgate.web.state.values import AppValue, ChangeValue, CodeCount, Need, ProcessValue, VersionValue
from rulecore.documents.status import StatusKind
from streamcore.control.channel import last_status, standby_channel
from streamcore.control.status import DriverPhase, DriverStatus
from streamcore.errors import StreamError
from streamcore.service.config.documents import read_settings
from streamcore.storage.location import location

SILENT_S = 30.0
_AT_WORK = (DriverPhase.STARTING, DriverPhase.STANDBY, DriverPhase.RUNNING, DriverPhase.DRAINING)
_DAY_MS = 86_400_000
_ANSWER_MS = 30_000
_LAG_S = 60.0
_LEVELS = ("bad", "warn", "info")
_MOST_NEEDS = 20
_MOST_CODES = 3  # of dead letters that are named one by one


def read_process(settings: Path | None, now_s: float) -> ProcessValue | None:
    """Return the status of an app's process, from the files beside its checkpoint; None without one."""
    if settings is None:
        return None
    try:
        checkpoint = location(str(read_settings(settings)["checkpoint"]))
        texts = [last_status(folder) for folder in (checkpoint, standby_channel(checkpoint))]
    except (StreamError, KeyError):
        return None
    found = [status for text in texts if (status := DriverStatus.from_json(text)) is not None]
    if not found:
        return None
    status = max(found, key=lambda one: one.at_ms)
    age_s = max(0.0, now_s - status.at_ms / 1000)
    return ProcessValue(
        phase=status.phase.value,
        runs=status.phase in _AT_WORK and age_s < SILENT_S,
        age_s=round(age_s, 1),
        epoch=status.epoch,
        batch=status.batch,
        lag_rows=status.lag_rows,
        lag_s=status.lag_s,
        busy_percent=status.busy_percent,
        watermark_ms=status.watermark_ms,
        message=status.message,
    )


def read_app(
    snapshot: Snapshot,
    settings: Path | None,
    rate: AlertRate,
    letters: DeadLetterReader,
    now_s: float | None = None,
) -> AppValue:
    """Return an app at a glance. ``now_s``: the clock; None: the machine's."""
    now_s = time.time() if now_s is None else now_s
    now_ms = int(now_s * 1000)
    versions, process = list_versions(snapshot), read_process(settings, now_s)
    minutes, cut = rate.by_minute(now_ms)
    codes, _ = letters.codes.read()
    needs = [
        *_process_needs(snapshot.app, process),
        *_rule_needs(snapshot.app, versions),
        *_change_needs(snapshot, now_ms),
        *dead_letter_needs(snapshot.app, codes, now_ms),
    ]
    return AppValue(
        app=snapshot.app,
        process=process,
        rules=dict(Counter(one.mode.partition(" ")[0] for one in versions)),
        epoch=snapshot.history.rules.epoch,
        alerts_per_minute=minutes,
        alerts_cut=cut,
        dead_letters=codes,
        needs=tuple(sorted(needs, key=lambda need: _LEVELS.index(need.level))[:_MOST_NEEDS]),
    )


def _process_needs(app: str, process: ProcessValue | None) -> Iterator[Need]:
    path, command = f"/apps/{quote(app)}", "headgate status rules --settings FILE"
    if process is None:
        return
    if process.phase == DriverPhase.FAILED.value:
        yield Need(level="bad", what="The app has failed", detail=process.message, path=path, command=command)
    elif not process.runs:
        detail = f"Phase {process.phase}, last heard of {process.age_s:.0f} s ago. {process.message}".strip()
        yield Need(level="bad", what="The app does not run", detail=detail, path=path, command=command)
    elif process.message:
        yield Need(level="warn", what="The app waits", detail=process.message, path=path, command=command)
    if process.runs and process.lag_s > _LAG_S:
        detail = f"{process.lag_rows:,} records wait, the oldest for {process.lag_s:.0f} s."
        yield Need(level="warn", what="The app lags behind", detail=detail, path=path, command=command)


def _rule_needs(app: str, versions: Sequence[VersionValue]) -> Iterator[Need]:
    for one in versions:
        path = f"/apps/{quote(app)}/rules/{quote(one.rule)}"
        command = f"headgate rules list --app {app} --rule {one.rule}"
        if one.quarantined or one.status == StatusKind.QUARANTINED:
            reason = one.quarantined or one.reason or ""
            what = f"{one.rule} version {one.version} is in quarantine"
            yield Need(level="bad", what=what, detail=_first_line(reason), path=path, command=command)
        elif one.slot == "candidate":
            what = f"{one.rule} version {one.version} is on trial ({one.mode})"
            detail = "Compare it with the live version, then make it live or end the trial."
            yield Need(level="info", what=what, detail=detail, path=path, command=command)


def _change_needs(snapshot: Snapshot, now_ms: int) -> Iterator[Need]:
    """Yield the newest change of each subject that was rejected in the last day, or that the app has not answered; of
    the latter as many as an overview shows, for an app that does not run may have thousands."""
    seen: set[tuple[str, str]] = set()
    waiting = 0
    for entry in reversed(snapshot.history.entries):
        time_ms, status = entry.written.time_ms, entry.status
        if time_ms < now_ms - _DAY_MS:
            return
        if (status.subject, status.name) in seen:
            continue
        seen.add((status.subject, status.name))
        answer = find_answer(snapshot, entry)
        rejected = (status.status if answer is None else answer.status) == StatusKind.REJECTED
        late = answer is None and not rejected and time_ms < now_ms - _ANSWER_MS and waiting < _MOST_NEEDS
        if not (rejected or late):
            continue
        waiting += late
        change = read_change(snapshot, entry)
        what = f"{change.subject} {change.name}" + (f" version {change.version}" if change.version else "")
        where, command = _change_place(snapshot.app, change)
        if rejected:
            detail = _first_line(change.reason or "")
            yield Need(level="bad", what=f"{what} was rejected", detail=detail, path=where, command=command)
        else:
            detail = "It is on the control topic. The app takes it when it runs."
            yield Need(level="warn", what=f"{what} has no answer", detail=detail, path=where, command=command)


def _change_place(app: str, change: ChangeValue) -> tuple[str, str]:
    command = f"headgate rules list --history --app {app}"
    if change.subject == "rule":
        return f"/apps/{quote(app)}/rules/{quote(change.name, safe='')}", f"{command} --rule {change.name}"
    return f"/apps/{quote(app)}", command


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def dead_letter_needs(app: str, codes: tuple[CodeCount, ...], now_ms: int) -> Iterator[Need]:
    """Yield the codes of dead letters of the last day, or one need for many of them."""
    new = [one for one in codes if one.latest_ms >= now_ms - _DAY_MS]
    if len(new) > _MOST_CODES:
        count = sum(one.count for one in new)
        yield Need(
            level="warn",
            what=f"{count:,} dead letters of {len(new)} codes",
            detail="Most: " + ", ".join(f"{one.code} {one.count:,}" for one in new[:_MOST_CODES]),
            path=f"/apps/{quote(app)}/dead-letters",
            command=f"headgate deadletters list --app {app}",
        )
        return
    for one in new:
        records = "1 dead letter" if one.count == 1 else f"{one.count:,} dead letters"
        yield Need(
            level="warn",
            what=f"{records}: {one.code}",
            detail=one.example,
            path=f"/apps/{quote(app)}/dead-letters?code={quote(one.code)}",
            command=f"headgate deadletters list --app {app} --code {one.code}",
        )
