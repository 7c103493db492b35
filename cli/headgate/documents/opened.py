"""A settings document with its app, opened for a trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a settings document is made of anything

from headgate.documents.lookup_answers import Answers, answered
from headgate.documents.services import find_service
from headgate.documents.trial import TrialInput, TrialResult, build_trial_app, run_trial
from streamcore.service.config.documents import read_settings

if TYPE_CHECKING:
    from streamcore.app import App
    from streamcore.service.config.settings import ServiceSettings

#: Services whose rows come when windows close: their samples have an end.
_WINDOWED = frozenset({"sessions"})


@dataclass(frozen=True)
class OpenedDocument:
    """``document``: as it was read; ``settings``: what was made of it; ``ends``: as in ``TrialInput``."""

    document: Mapping[str, Any]
    settings: ServiceSettings
    app: App
    ends: bool

    def run(self, given: TrialInput) -> TrialResult:
        """Run the app on a sample."""
        return run_trial(self.app, given)


@contextmanager
def opened(service: str, file: Path, answers: Answers | None = None) -> Iterator[OpenedDocument]:
    """Read a settings document and build its app. ``ConfigError`` lists everything that is wrong."""
    definition = find_service(service)
    document = read_settings(file)
    with answered(document, answers) as changed:
        settings = definition.check_settings(changed, str(file))
        yield OpenedDocument(document, settings, build_trial_app(definition, settings), service in _WINDOWED)
