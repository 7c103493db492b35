"""A trial of a version: its alerts beside those of the live version, from both lanes."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.web.state.app_reader import Snapshot
from headgate.web.state.comparison import VersionAlert, compare_alerts
from headgate.web.state.lanes.alert_records import AlertFilter
from headgate.web.state.lanes.alerts import AlertReader
from headgate.web.state.values import AlertValue, ComparisonValue, RuleValue, VersionValue
from rulecore.documents.slots import Slot, VersionSlot
from streamcore.wire.lanes import ALERTS, SHADOW

_MOST = 5_000  # alerts of a lane


def on_trial(rule: RuleValue) -> VersionValue | None:
    """Return the version that is tried: the one in the candidate slot, or the live one if it is in shadow alone."""
    candidate = next((one for one in rule.slots if one.slot == Slot.CANDIDATE.value), None)
    live = next((one for one in rule.slots if one.slot == Slot.LIVE.value), None)
    alone = live if live is not None and live.mode.startswith(("shadow", "canary")) else None
    return candidate or alone


def read_trial(snapshot: Snapshot, rule: RuleValue, alerts: AlertReader) -> ComparisonValue | None:
    """Compare the version on trial with the live one, since it was published; None if there is no trial."""
    tried = on_trial(rule)
    if tried is None:
        return None
    live = next((one for one in rule.slots if one.slot == Slot.LIVE.value and one.version != tried.version), None)
    wanted = AlertFilter(rule=rule.rule, since_ms=tried.published_ms)
    found = [one for lane in (ALERTS, SHADOW) for one in alerts.page(lane, wanted, _MOST, {}).alerts]
    fixed = _fixed_windows(snapshot, rule.rule)
    return compare_alerts(
        _of_version(found, tried.version, fixed), [] if live is None else _of_version(found, live.version, fixed)
    )


def _of_version(alerts: list[AlertValue], version: int, fixed: Mapping[int, bool]) -> list[VersionAlert]:
    own = fixed.get(version, True)
    return [VersionAlert.of(one.body, fixed=own, alert_id=one.alert_id) for one in alerts if one.version == version]


def _fixed_windows(snapshot: Snapshot, rule: str) -> Mapping[int, bool]:
    """Return by version whether its windows end at a fixed time."""
    held = (snapshot.history.rules.rules.get(VersionSlot(rule, slot)) for slot in Slot)
    return {one.rule.version: one.window is not None for one in held if one is not None}
