"""``python -m <service> --settings FILE``: run a service until SIGTERM or SIGINT, then stop between batches.

One JSON object a cut goes to standard output, messages go to standard error. Exit codes: 0 stopped as asked, 1 cannot
go on, 2 settings cannot be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson

from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.service.documents import load_document
from streamcore.service.settings import ServiceSettings
from streamcore.spark.start import Start

if TYPE_CHECKING:
    from streamcore.spark.runner import CutReport, Listeners, Runner

S = TypeVar("S", bound=ServiceSettings)


def run_service(name: str, settings: type[S], build: Callable[[], Callable[[S, Start, Listeners], Runner]]) -> int:
    """``name`` is said before every message. ``build`` imports what builds the runner, while the JVM starts."""
    parser = argparse.ArgumentParser(prog=name, description=f"Run {name}.")
    parser.add_argument("--settings", type=Path, required=True, help="YAML or JSON file with the service's settings")
    arguments = parser.parse_args()
    try:
        document = load_document(arguments.settings, settings)
        with Start(document.app, document.checkpoint, document.spark_session) as start:
            _run(name, document, start, build)
    except ConfigError as error:
        return _say(name, error, 2)
    except StreamError as error:
        return _say(name, error, 1)
    return 0


def _run(name: str, settings: S, start: Start, build: Callable[[], Callable[[S, Start, Listeners], Runner]]) -> None:
    make = build()
    from streamcore.spark.runner import Listeners

    def failure(error: Retryable) -> None:
        sys.stderr.write(f"{name}: trying again: {error}\n")
        sys.stderr.flush()

    runner = make(settings, start, Listeners(_report, _progress, failure))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.drain())
    runner.run()


def _report(report: CutReport) -> None:
    _print({"cut": dataclasses.asdict(report)})


def _progress(progress: Mapping[str, object]) -> None:
    _print({"spark": {name: progress[name] for name in ("batchId", "durationMs")}})


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, default=str) + b"\n")
    sys.stdout.buffer.flush()


def _say(name: str, error: StreamError, code: int) -> int:
    sys.stderr.write(f"{name}: {type(error).__name__}: {error}\n")
    return code
