"""``python -m <service> --settings FILE``: run a service until SIGTERM or SIGINT, then stop between batches.

``--standby`` loads all that a service needs and waits for the request ``go`` before it owns anything: then it owns the
checkpoint of an epoch, ``e<epoch>`` in that of the settings. With ``--restore-from NAME`` it reports whether it
can go on from that savepoint (see ``requests``, ``report``). Without ``--standby`` it owns the checkpoint of the
settings itself.

Messages go to standard error, with one line for each cut that has rows. With ``--reports`` one JSON object a cut goes
to standard output instead, for a program that watches. ``ServiceExit`` lists the exit codes.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from streamcore.codes import ExitCode
from streamcore.control.channel import ControlChannel, FileChannel, standby_channel
from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import ConfigError, StreamError
from streamcore.service import logs
from streamcore.service.config.executors import POD_NAME, POD_NAMESPACE
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.definition import ServiceDefinition
from streamcore.service.lifecycle import RunnerFactory, ServiceProcess, StartMode

S = TypeVar("S", bound=ServiceSettings)

CONTROL_CHANNEL = EnvironmentVariable(
    "HEADGATE_CONTROL_CHANNEL",
    "Where the driver reads commands and writes its status: `pod` for the annotations of its pod, or a folder.",
    Reader.SERVICE,
    default="the checkpoint's folder; for a standby the folder `standby` in it",
)


class ServiceExit(ExitCode):
    """Exit codes of the services rules, etl, sessions and search."""

    STOPPED = (0, "The service stops between two batches after SIGTERM, SIGINT or a drain.", "Nothing.")
    FAILED = (
        1,
        "The service cannot go on: a dependency is away for too long, or another process owns the checkpoint.",
        "Read the last message, correct the cause and start the service again; it continues from the checkpoint.",
    )
    SETTINGS = (
        2,
        "The settings cannot be used.",
        "Correct the settings that the message names; a restart without a change fails again.",
    )


def run_service(service: ServiceDefinition[S], arguments: Sequence[str] | None = None) -> int:
    """Run a service with these arguments (default: those of the command line); return its exit code."""
    name = service.name
    parsed = _parser(name).parse_args(arguments)
    log = logging.getLogger(name)
    logs.configure(name)

    def build() -> RunnerFactory[S]:  # called while the JVM starts, because it imports Spark
        return service.factory().create_runner

    try:
        settings = service.load_settings(parsed.settings)
        if settings.jars is not None and not settings.jars.is_dir():
            raise ConfigError(
                f"jars: there is no folder {settings.jars}; name the one that `headgate jars` prints, or leave the "
                "entry out where Spark has the jars"
            )
        logs.configure(name, settings.telemetry.logs)
        mode = StartMode(parsed.standby, parsed.restore_from, parsed.reports)
        channel = _channel(settings, mode, os.environ)
        ServiceProcess(name, settings, build, channel, mode, service.savepoints).run()
    except StreamError as error:
        log.error("%s: %s", type(error).__name__, error)
        return ServiceExit.SETTINGS if isinstance(error, ConfigError) else ServiceExit.FAILED
    return ServiceExit.STOPPED


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=name, description=f"Run {name}.")
    parser.add_argument("--settings", type=Path, required=True, help="YAML or JSON file with the service's settings")
    parser.add_argument("--standby", action="store_true", help="be ready, own nothing, and wait for the request to go")
    parser.add_argument("--restore-from", metavar="NAME", help="of a standby: the savepoint that it will go on from")
    parser.add_argument(
        "--reports", action="store_true", help="write each cut as JSON to stdout instead of as a line to the log"
    )
    return parser


def _channel(settings: ServiceSettings, mode: StartMode, environment: Mapping[str, str]) -> ControlChannel:
    where = environment.get(CONTROL_CHANNEL)
    if not where:
        if mode.standby:
            return FileChannel(standby_channel(settings.checkpoint), exclusive=True)
        return FileChannel(settings.checkpoint)
    if where != "pod":
        return FileChannel(Path(where), exclusive=True)
    from streamcore.control.pod_channel import PodAnnotationChannel

    missing = [name for name in (POD_NAME, POD_NAMESPACE) if not environment.get(name)]
    if missing:
        raise ConfigError(
            f"{CONTROL_CHANNEL}=pod, and the environment has no {', '.join(missing)}; see docs/kubernetes.md"
        )
    return PodAnnotationChannel(environment[POD_NAMESPACE], environment[POD_NAME])


__all__: Sequence[str] = ["run_service"]
