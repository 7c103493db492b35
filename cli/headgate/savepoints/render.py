"""Savepoints as people and programs read them: pure functions from manifests and plans to text and JSON."""

from __future__ import annotations

from collections.abc import Iterable

from headgate.console.output import Json
from headgate.console.tables import table
from rulecore.documents.scalars import render_time
from streamcore.savepoint import CompatibilityReport, SavepointManifest
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK

_LIST_HEAD = ("NAME", "BATCH", "EPOCH", "TAKEN", "VERSION", "ROWS", "SIZE")
_TABLE_HEAD = ("TABLE", "STAGE", "ROWS", "SIZE", "VERSIONS")
_KILO = 1024


def size(count: int) -> str:
    """Bytes for people."""
    value, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < _KILO:
            break
        value, unit = value / _KILO, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def list_text(manifests: Iterable[SavepointManifest]) -> str:
    """Render one line for each savepoint."""
    rows = [
        (
            one.name + ("" if one.settled else " (unsettled)"),
            str(one.batch),
            str(one.epoch),
            render_time(one.created_ms),
            one.version,
            f"{one.total_rows:,}",
            size(one.total_bytes),
        )
        for one in manifests
    ]
    return "\n".join(table(_LIST_HEAD, rows, right=("BATCH", "EPOCH", "ROWS", "SIZE")))


def manifest_text(one: SavepointManifest) -> str:
    """One, whole."""
    position = one.next_position
    settled = "" if one.settled else ", UNSETTLED: a later batch may be written in part"
    lines = [
        f"savepoint {one.name} of app {one.app.name}: after batch {one.batch} of epoch {one.epoch}{settled}",
        f"  taken      {render_time(one.created_ms)} by version {one.version}",
        f"  digest     {one.digest}",
        f"  shards     {one.app.shards} in {one.app.stages} stages, {len(one.files)} files, {size(one.total_bytes)}",
        f"  clock      {render_time(position.clock_ms)}",
    ]
    for topic, places in position.by_topic().items():
        ends = ", ".join(f"{partition}: {offset}" for partition, offset in places.items())
        lines.append(f"  goes on    {topic} at {ends}")
    for domain in one.domains:
        lines.append(f"  watermark  {_time(domain.watermark_ms)} of {', '.join(domain.topics)}")
    rows = [(t.name, str(t.stage), f"{t.rows:,}", size(t.bytes), ", ".join(map(str, t.versions))) for t in one.tables]
    return "\n".join([*lines, "", *table(_TABLE_HEAD, rows, right=("STAGE", "ROWS", "SIZE"))])


def _time(ms: int) -> str:
    if ms <= NO_WATERMARK:
        return "not known yet"
    return "the end" if ms >= END_OF_TIME_MS else render_time(ms)


def summary(one: SavepointManifest) -> dict[str, Json]:
    """For programs."""
    return {
        "name": one.name,
        "app": one.app.name,
        "batch": one.batch,
        "epoch": one.epoch,
        "created_ms": one.created_ms,
        "version": one.version,
        "settled": one.settled,
        "rows": one.total_rows,
        "bytes": one.total_bytes,
        "digest": one.digest,
    }


def compatibility_text(plan: CompatibilityReport) -> str:
    """Render the compatibility, then one line for each reason."""
    return "\n".join([str(plan.compatibility), *(f"  {reason}" for reason in plan.reasons)])


def compatibility_json(plan: CompatibilityReport) -> dict[str, Json]:
    """For programs."""
    reasons: list[Json] = [{"verdict": str(reason.compatibility), "text": reason.text} for reason in plan.reasons]
    return {"verdict": str(plan.compatibility), "possible": plan.possible, "reasons": reasons}
