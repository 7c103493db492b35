"""``python -m headgate_rules --settings FILE``: run the rules app until SIGTERM or SIGINT, then stop between batches.

One JSON object a cut goes to standard output, messages go to standard error. Exit codes: 0 stopped as asked, 1 cannot
go on, 2 settings cannot be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from headgate_rules.settings import RulesSettings, load_settings
from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.spark.start import Start

if TYPE_CHECKING:
    from streamcore.spark.runner import CutReport


def main() -> int:
    """Parse, run, explain."""
    parser = argparse.ArgumentParser(prog="headgate-rules", description="Run the Headgate rules app.")
    parser.add_argument("--settings", type=Path, required=True, help="YAML or JSON file with the app's settings")
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments.settings)
        with Start(settings.app, settings.checkpoint, settings.spark_session) as start:
            _run(settings, start)
    except ConfigError as error:
        return _say(error, 2)
    except StreamError as error:
        return _say(error, 1)
    return 0


def _run(settings: RulesSettings, start: Start) -> None:
    """What is imported here takes seconds; the JVM needs them too."""
    from headgate_rules.app import build_runner
    from streamcore.spark.runner import Listeners

    runner = build_runner(settings, start, Listeners(_report, _progress, _failure))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.drain())
    runner.run()


def _report(report: CutReport) -> None:
    _print({"cut": dataclasses.asdict(report)})


def _progress(progress: Mapping[str, object]) -> None:
    _print({"spark": {name: progress[name] for name in ("batchId", "durationMs")}})


def _failure(error: Retryable) -> None:
    sys.stderr.write(f"headgate-rules: trying again: {error}\n")
    sys.stderr.flush()


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, default=str) + b"\n")
    sys.stdout.buffer.flush()


def _say(error: StreamError, code: int) -> int:
    sys.stderr.write(f"headgate-rules: {type(error).__name__}: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
