"""The settings of a program on this machine: a file, entries of the command line, and defaults for the rest.

The defaults are the local broker, and a folder in the cache for checkpoint, savepoints and temporary files. ``save``
writes the complete settings there, so that later commands about the app need no file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a settings document is made of anything

import yaml

from headgate.errors import InputError
from headgate.kafka_login import DEFAULT_BOOTSTRAP, KafkaLogin
from headgate.local import cache
from streamcore.kafka.delivery import AT_LEAST_ONCE_TEXT, CheckpointingMode
from streamcore.service.config.documents import read_yaml
from streamcore.service.program.definition import MODULE, program_service

if TYPE_CHECKING:
    from streamcore.service.definition import ServiceDefinition
    from streamcore.service.program.settings import ProgramSettings

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """The user's options. ``file``: the settings file. ``entries``: ``path.to.entry=value``. ``login``: of Kafka.
    ``data``: the folder of this machine's data."""

    file: Path | None = None
    entries: Sequence[str] = ()
    login: KafkaLogin = field(default_factory=KafkaLogin)
    data: Path | None = None


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A program with its settings, and ``document``, from which they were made. ``folder``: its data here."""

    reference: str
    service: ServiceDefinition[ProgramSettings]
    document: Document
    settings: ProgramSettings
    folder: Path

    @property
    def settings_file(self) -> Path:
        """The complete settings, after ``save``."""
        return self.folder / "settings.json"

    @property
    def module(self) -> str:
        """The module of its process."""
        return MODULE

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments of its process."""
        return (self.reference,)

    @property
    def name_for_savepoints(self) -> str:
        """The name that savepoint commands use."""
        return self.reference

    def save(self, **entries: object) -> LoadedProgram:
        """Write the settings with further entries, and return the program with them."""
        document = {**self.document, **entries}
        settings = self.service.check_settings(document, str(self.settings_file))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings_file.write_text(json.dumps(document, indent=2, default=str), encoding="utf-8")
        return LoadedProgram(self.reference, self.service, document, settings, self.folder)


def load_program(reference: str, options: ProgramOptions) -> LoadedProgram:
    """Import the program and complete its settings. Raises ``ConfigError`` or ``InputError`` if it cannot."""
    service = program_service(reference)
    document: Document = {} if options.file is None else read_yaml(options.file)
    document = with_entries(document, options.entries)
    where = str(options.file or "the options")
    app = _app_name(service, document, where)
    folder = (options.data or cache.root() / "programs" / app).absolute()
    document = {
        "app": app,
        "checkpoint": str(folder / "checkpoint"),
        "local_dir": str(folder / "tmp"),
        **document,
        "kafka": _kafka(document.get("kafka"), options.login),
    }
    settings = service.check_settings(document, where)
    return LoadedProgram(reference, service, document, settings, folder)


def load_program_settings(reference: str, file: Path | None) -> LoadedProgram:
    """Return a program with the settings of a file, or else those that ``headgate run`` has written here."""
    loaded = load_program(reference, ProgramOptions(file))
    if file is None and loaded.settings_file.exists():
        return load_program(reference, ProgramOptions(loaded.settings_file))
    return loaded


def with_entries(document: Mapping[str, Any], entries: Sequence[str]) -> Document:
    """Return the document with each entry ``path.to.entry=value`` set; a value is YAML."""
    result = json.loads(json.dumps(document, default=str))
    for entry in entries:
        path, equals, text = entry.partition("=")
        *parents, name = path.split(".")
        if not equals or not all((*parents, name)):
            raise InputError(f"--set {entry!r}: write such as --set shards=8 or --set kafka.bootstrap=host:9092")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise InputError(f"--set {entry!r}: {parent} is no mapping, so it has no entry {name}")
        try:
            place[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"--set {entry!r}: the value is no YAML: {error}") from error
    assert isinstance(result, dict), "a document is a mapping"
    return result


def _app_name(service: ServiceDefinition[ProgramSettings], document: Document, where: str) -> str:
    """Return the name of the app: of the settings, of the topology, or of the program's model."""
    default = service.settings.model_fields["app"].default
    name = document.get("app") or service.defaults.get("app") or (default if isinstance(default, str) else None)
    if not isinstance(name, str):
        raise InputError(f"{where}: the program takes its settings, so they name the app: --set app=NAME")
    return name


def _kafka(entry: object, login: KafkaLogin) -> Document:
    kafka = dict(entry) if isinstance(entry, dict) else {}
    if login.file is not None:
        kafka = read_yaml(login.file) | kafka
    if login.bootstrap is not None:
        kafka["bootstrap"] = login.bootstrap
    return {"bootstrap": DEFAULT_BOOTSTRAP} | kafka


def describe_checkpoints(settings: ProgramSettings) -> str:
    """Return what the settings say about checkpoints, as a line of a plan."""
    mode = settings.checkpointing_mode
    more = f" ({AT_LEAST_ONCE_TEXT})" if mode is CheckpointingMode.AT_LEAST_ONCE else ""
    return (
        f"checkpoint {settings.checkpoint}: one a batch, {mode}{more}; "
        f"the last {settings.retained_checkpoints} are kept; {settings.checkpoint_retention}"
    )
