"""``python -m headgate_search --settings FILE`` (see ``streamcore.service.main``)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headgate_search.settings import SearchSettings
from streamcore.service.main import run_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamcore.service.savepoints import Savepoints
    from streamcore.spark.runner import Listeners, Runner
    from streamcore.spark.start import Start


def main() -> int:
    """Run it; the exit code."""
    return run_service("headgate-search", SearchSettings, _build, _savepoints)


def _build() -> Callable[[SearchSettings, Start, Listeners], Runner]:
    from headgate_search.app import build

    return build


def _savepoints(settings: SearchSettings, start: Start) -> Savepoints:
    from headgate_search.app import build_app
    from streamcore.spark.saving import ServiceSavepoints

    return ServiceSavepoints(settings, build_app(settings), start)


if __name__ == "__main__":
    sys.exit(main())
