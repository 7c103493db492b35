"""Renders savepoints and compatibility reports as text and JSON: pure functions."""

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
    """Render a number of bytes with a unit."""
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
            manifest.name + ("" if manifest.settled else " (unsettled)"),
            str(manifest.batch),
            str(manifest.epoch),
            render_time(manifest.created_ms),
            manifest.version,
            f"{manifest.total_rows:,}",
            size(manifest.total_bytes),
        )
        for manifest in manifests
    ]
    return "\n".join(table(_LIST_HEAD, rows, right=("BATCH", "EPOCH", "ROWS", "SIZE")))


def manifest_text(manifest: SavepointManifest) -> str:
    """Render a manifest: positions, watermarks and tables."""
    position = manifest.next_position
    settled = "" if manifest.settled else ", UNSETTLED: a later batch may be written in part"
    lines = [
        f"savepoint {manifest.name} of app {manifest.app.name}: "
        f"after batch {manifest.batch} of epoch {manifest.epoch}{settled}",
        f"  taken      {render_time(manifest.created_ms)} by version {manifest.version}",
        f"  digest     {manifest.digest}",
        f"  shards     {manifest.app.shards} in {manifest.app.stages} stages, {len(manifest.files)} files, "
        f"{size(manifest.total_bytes)}",
        f"  clock      {render_time(position.clock.clock_ms)}",
    ]
    for topic, offsets in position.by_topic().items():
        ends = ", ".join(f"{partition}: {offset}" for partition, offset in offsets.items())
        lines.append(f"  continues  {topic} at {ends}")
    for group in manifest.watermark_groups:
        lines.append(f"  watermark  {_time(group.watermark_ms)} of {', '.join(group.topics)}")
    rows = [
        (t.name, str(t.stage), f"{t.rows:,}", size(t.bytes), ", ".join(map(str, t.versions))) for t in manifest.tables
    ]
    return "\n".join([*lines, "", *table(_TABLE_HEAD, rows, right=("STAGE", "ROWS", "SIZE"))])


def _time(ms: int) -> str:
    if ms <= NO_WATERMARK:
        return "none yet"
    return "the end" if ms >= END_OF_TIME_MS else render_time(ms)


def summary(manifest: SavepointManifest) -> dict[str, Json]:
    """Return the JSON of a savepoint, without its tables."""
    return {
        "name": manifest.name,
        "app": manifest.app.name,
        "batch": manifest.batch,
        "epoch": manifest.epoch,
        "created_ms": manifest.created_ms,
        "version": manifest.version,
        "settled": manifest.settled,
        "rows": manifest.total_rows,
        "bytes": manifest.total_bytes,
        "digest": manifest.digest,
    }


def compatibility_text(plan: CompatibilityReport) -> str:
    """Render the compatibility, then one line for each reason."""
    return "\n".join([str(plan.compatibility), *(f"  {reason}" for reason in plan.reasons)])


def compatibility_json(plan: CompatibilityReport) -> dict[str, Json]:
    """Return the JSON of a compatibility report."""
    reasons: list[Json] = [{"verdict": str(reason.compatibility), "text": reason.text} for reason in plan.reasons]
    return {"verdict": str(plan.compatibility), "possible": plan.possible, "reasons": reasons}
