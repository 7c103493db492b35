"""The work of ``headgate fork``: a second app from a savepoint of a first one.

1. Complete the settings of the second app: those of the first, its own name, checkpoint and changed entries.
2. Check that both do not write to the same tables, and that the savepoint fits the second app. Nothing is written yet.
3. Create its topics, and write its settings file. Nothing starts the app yet; the command may be run again.
4. Create its checkpoint, last: a checkpoint that exists has a settings file to start it with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any  # a settings document is made of anything

from headgate.errors import InputError
from headgate.programs.program_settings import with_entries
from headgate.programs.service_app import ServiceDocument
from headgate.savepoints.create import RestoredCheckpoint, restore
from streamcore.savepoint import RestoreDecisions
from streamcore.savepoint.fork import find_savepoint
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import write_text
from streamcore.storage.location import location

if TYPE_CHECKING:
    from streamcore.service.config.settings import ServiceSettings

#: Settings of sinks: two apps that wrote to one table would overwrite each other.
_SINKS = ("delta", "postgres", "opensearch")


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork that can be started. ``created_ms``: when the savepoint was taken; what the first app has written since
    then is comparable. ``file``: its settings."""

    app: str
    checkpoint: str
    restored: RestoredCheckpoint
    created_ms: int
    file: Path


def fork(
    first: ServiceDocument,
    savepoint: str,
    name: str,
    entries: Sequence[str],
    decisions: RestoreDecisions,
    file: Path,
    checkpoint: str | None,
) -> Fork:
    """Run steps 1 to 4. Raises ``ConfigError`` if the savepoint does not fit, ``InputError`` for wrong arguments."""
    from streamcore.checkpoint.checkpoint import CheckpointRoot
    from streamcore.savepoint.app_description import check_app_compatibility
    from streamcore.savepoint.restore import check_restorable

    # 1. The settings.
    if name == first.settings.app:
        raise InputError(f"--as {name}: that is the first app; give the fork another name")
    folder = checkpoint or str(first.settings.checkpoint.parent / f"{name}-checkpoint")
    document = with_entries(first.document, entries)
    document |= {"app": name, "checkpoint": folder, "savepoints": first.settings.savepoints_root}
    document["restore"] = {**_mapping(document.get("restore")), "app": first.settings.app}
    second = first.with_document(document, str(file))
    # 2. The checks.
    _check_sinks(first.document, document)
    app = second.service.build_app(second.settings)
    place = open_object_store(first.settings.savepoints_root)
    found = find_savepoint(place, savepoint, name, app.control_topic, first.settings.app)
    manifest, root = found.manifest, CheckpointRoot(location(folder))
    report = check_app_compatibility(manifest, second.loaded.app, decisions)
    check_restorable(manifest, report, root, manifest.epoch + 1)
    # 3. Topics and settings.
    _create_topics(second)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(document, indent=2, default=str))
    # 4. The checkpoint.
    restored = restore(second.loaded, found, root.path, manifest.epoch + 1, decisions)
    return Fork(name, folder, restored, manifest.created_ms, file)


def _check_sinks(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    for sink in _SINKS:
        if first.get(sink) is not None and first.get(sink) == second.get(sink):
            raise InputError(
                f"{sink}: both apps would write to the same tables; name others, such as --set "
                f"{sink}={{...}}, or leave the sink out of the fork"
            )


def _create_topics(second: ServiceDocument) -> None:
    from streamcore.kafka.topics import ensure_topics

    settings: ServiceSettings = second.settings
    ensure_topics(settings.kafka, second.service.topics(second.settings))


def _mapping(entry: object) -> dict[str, Any]:
    return dict(entry) if isinstance(entry, dict) else {}
