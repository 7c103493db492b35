"""A settings document with its app, opened for a trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a settings document is made of anything

from headgate.console.messages import to_stderr
from headgate.documents.checking import check_document
from headgate.documents.lookup_answers import Answers, answered
from headgate.documents.services import find_service
from headgate.documents.trial import TrialInput, TrialResult, build_trial_app, run_trial
from headgate.errors import InputError
from streamcore.errors import ConfigError
from streamcore.service.config.documents import read_settings

if TYPE_CHECKING:
    from streamcore.app import App
    from streamcore.service.config.settings import ServiceSettings
    from streamcore.service.definition import ServiceDefinition

#: Services whose rows come when windows close: their samples have an end.
_WINDOWED = frozenset({"sessions"})


@dataclass(frozen=True)
class OpenedDocument:
    """``document``: as it was read; ``settings``: made of it; ``ends``: as in ``TrialInput``."""

    document: Mapping[str, Any]
    settings: ServiceSettings
    app: App
    ends: bool

    def run(self, given: TrialInput) -> TrialResult:
        """Run the app on a sample."""
        return run_trial(self.app, given)


@contextmanager
def opened(service: str, file: Path, answers: Answers | None = None) -> Iterator[OpenedDocument]:
    """Read a settings document and build its app. ``InputError`` lists all its mistakes, with their places.

    ``answers``: of its look-up; None: the server that it names is called.
    """
    definition = find_service(service)
    with naming_mistakes(definition, file):
        document = read_settings(file)
        if answers and not {"lookup", "lookups"} & document.keys():
            raise InputError(f"--lookup: {file} has no look-up")
        with_server = answers is None and "lookup" in document
    if with_server:
        to_stderr(f"the look-up calls {_url(document)}; with --lookup FILE the file answers instead")
    with answered(document, answers) as changed:
        with naming_mistakes(definition, file):
            settings = definition.check_settings(changed, str(file))
            app = build_trial_app(definition, settings)
        yield OpenedDocument(document, settings, app, service in _WINDOWED)


@contextmanager
def naming_mistakes(definition: ServiceDefinition[Any], file: Path) -> Iterator[None]:
    """Turn a ``ConfigError`` about a document into an ``InputError`` with all its mistakes and their places."""
    try:
        yield
    except ConfigError:
        checked = check_document(definition, file)
        if not checked.problems:
            raise
        raise InputError("\n".join([mistakes_in(file), *(one.render() for one in checked.problems)])) from None


def mistakes_in(file: Path) -> str:
    """Return the first line of a list of mistakes."""
    return f"{file} cannot be used as it is:"


def _url(document: Mapping[str, Any]) -> str:
    lookup = document.get("lookup")
    return str(lookup.get("url")) if isinstance(lookup, Mapping) else "a server"
