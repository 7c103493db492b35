"""``python -m headgate_rules --settings FILE`` (see ``streamcore.service.main``)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headgate_rules.settings import RulesSettings
from streamcore.service.main import run_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamcore.service.savepoints import Savepoints
    from streamcore.spark.runner import Listeners, Runner
    from streamcore.spark.start import Start


def main() -> int:
    """Run it; the exit code."""
    return run_service("headgate-rules", RulesSettings, _build, _savepoints)


def _build() -> Callable[[RulesSettings, Start, Listeners], Runner]:
    from headgate_rules.app import build

    return build


def _savepoints(settings: RulesSettings, start: Start) -> Savepoints:
    from headgate_rules.app import build_app
    from streamcore.spark.saving import ServiceSavepoints

    return ServiceSavepoints(settings, build_app(settings), start)


if __name__ == "__main__":
    sys.exit(main())
