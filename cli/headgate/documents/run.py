"""Runs the settings document of a service on this machine: the jars, the broker and the topics, and a live view."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final  # a settings document is made of anything

from headgate.documents.checking import check_document
from headgate.documents.opened import mistakes_in
from headgate.documents.services import find_service
from headgate.errors import InputError
from headgate.local import cache
from headgate.programs.program_settings import with_entries
from streamcore.service.config.documents import read_settings
from streamcore.wire import no_pandas

if TYPE_CHECKING:
    from streamcore.service.config.settings import ServiceSettings
    from streamcore.service.definition import ServiceDefinition

_LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """``entries``: ``path.to.entry=value``, over those of the document. ``local``: use the local broker whatever Kafka
    the document names. ``create_topics``: also at a Kafka that is not on this machine. ``partitions``: of topics that
    are created; None: 4, or 1 if files are sent, so that their order stays. ``keep_broker``: leave the local servers
    running. ``sends``: files whose records are sent, as ``PATH`` or ``INPUT=PATH``."""

    entries: Sequence[str] = ()
    local: bool = False
    create_topics: bool = False
    partitions: int | None = None
    keep_broker: bool = False
    sends: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """A settings document to run (``headgate.programs.runnable.Runnable``). ``folder``: its log here."""

    name: str
    service: ServiceDefinition[Any]
    document: Mapping[str, Any]
    settings: ServiceSettings
    folder: Path

    @property
    def settings_file(self) -> Path:
        """The settings that the process reads, after ``save``."""
        return self.folder / "settings.json"

    @property
    def module(self) -> str:
        """The module of its process."""
        return f"headgate_{self.name}"

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments of its process: none."""
        return ()

    @property
    def name_for_savepoints(self) -> str:
        """The name that savepoint commands use."""
        return f"{self.name} --settings {self.settings_file}"

    def save(self, **entries: object) -> LoadedDocument:
        """Write the settings with further entries, and return the document with them."""
        document = {**self.document, **entries}
        settings = self.service.check_settings(document, str(self.settings_file))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings_file.write_text(json.dumps(document, indent=2, default=str), encoding="utf-8")
        return LoadedDocument(self.name, self.service, document, settings, self.folder)


def run_document(service: str, file: Path, options: RunOptions) -> None:
    """Run a settings document until it is stopped or its input ends. ``StreamError`` if it cannot run."""
    from rich.console import Console

    from headgate.console.messages import to_stderr
    from headgate.documents.samples import read_records_to_send
    from headgate.local.servers.base import HOST
    from headgate.local.servers.kafka import DEFAULT_PORT
    from headgate.programs.local_run import LocalOptions, LocalRun

    local = f"{HOST}:{DEFAULT_PORT}"
    loaded = load_document(
        service, file, [*options.entries, *([f"kafka.bootstrap='{local}'"] if options.local else [])]
    )
    bootstrap = loaded.settings.kafka.bootstrap
    is_broker = bootstrap in {f"{host}:{DEFAULT_PORT}" for host in _LOCAL}
    on_this_machine = all(each.rpartition(":")[0] in _LOCAL for each in bootstrap.split(","))
    no_pandas.unblock()
    sends = read_records_to_send(loaded.service.build_app(loaded.settings), options.sends)
    local_options = LocalOptions(
        DEFAULT_PORT if is_broker else None,
        options.partitions or (1 if sends else 4),
        fresh=False,
        keep_broker=options.keep_broker,
        create_topics=options.create_topics or on_this_machine,
        sends=sends,
    )
    LocalRun(loaded, local_options, to_stderr).run(Console())


def load_document(service: str, file: Path, entries: Sequence[str]) -> LoadedDocument:
    """Read a settings document to run. ``InputError`` lists all its mistakes, with their places."""
    definition = find_service(service)
    checked = check_document(definition, file)
    if checked.problems:
        raise InputError("\n".join([mistakes_in(file), *(problem.render() for problem in checked.problems)]))
    document = with_entries(read_settings(file), entries)
    settings = definition.check_settings(document, str(file))
    return LoadedDocument(service, definition, document, settings, cache.root() / "apps" / settings.app)
