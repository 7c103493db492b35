"""``headgate status``: shows the status of a service that runs on this machine, and why it waits."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.errors import InputError
from headgate.programs.service_app import load_service
from headgate.savepoints.options import settings_options
from headgate.time_arguments import show_time
from streamcore.control.channel import last_status, standby_channel
from streamcore.control.status import DriverPhase, DriverStatus
from streamcore.kafka.delivery import AT_LEAST_ONCE_TEXT, CheckpointingMode
from streamcore.storage.location import Location

#: A process publishes its status every few seconds.
_SILENT_S = 30.0
_AT_WORK = (DriverPhase.STARTING, DriverPhase.STANDBY, DriverPhase.RUNNING, DriverPhase.DRAINING)


@click.command(name="status")
@settings_options
@output_option
def command(service: str, file: Path | None, output: Output) -> int:
    """Show the status of a running service: phase, last batch, lag, and what it waits for.

    While a system that the app needs is away, such as its brokers or its schema registry, `message` has its name and
    the reason. Exit code 1 if the process has ended or has been silent for half a minute. In Kubernetes the status is
    the annotation headgate.dev/status of the driver's pod.
    """
    settings = load_service(service, file).settings
    status = _read(settings.checkpoint)
    age_s = max(0.0, time.time() - status.at_ms / 1000)
    runs = status.phase in _AT_WORK and age_s < _SILENT_S
    data: dict[str, Json] = {"app": settings.app, **asdict(status), "age_s": round(age_s, 1), "runs": runs}
    emit(output, data, "\n".join(_lines(settings.app, status, age_s)))
    return 0 if runs else 1


def _read(checkpoint: Location) -> DriverStatus:
    """Return the newest status that a process has published beside the checkpoint."""
    texts = [last_status(folder) for folder in (checkpoint, standby_channel(checkpoint))]
    found = [status for text in texts if (status := DriverStatus.from_json(text)) is not None]
    if not found:
        raise InputError(
            f"checkpoint {checkpoint}: no process has published a status there; is it the one of the settings that the "
            "service runs with? In Kubernetes: kubectl get pod -o yaml, annotation headgate.dev/status"
        )
    return max(found, key=lambda status: status.at_ms)


def _lines(app: str, status: DriverStatus, age_s: float) -> list[str]:
    lines = [f"app {app}: {status.phase}, version {status.version}"]
    if status.batch >= 0:
        lines.append(f"epoch {status.epoch}, batch {status.batch} is committed; busy {status.busy_percent} %")
    lines.append(f"lag {status.lag_rows} records, {status.lag_s:.1f} s; watermark {show_time(status.watermark_ms)}")
    if status.checkpointing_mode == CheckpointingMode.AT_LEAST_ONCE:
        lines.append(f"{status.checkpointing_mode}: {AT_LEAST_ONCE_TEXT}")
    if status.message:
        lines.append(status.message)
    if status.phase in _AT_WORK and age_s >= _SILENT_S:
        lines.append(f"it has been silent for {age_s:.0f} s: the process has ended or stands still; see its log")
    return lines
