"""Forks: a second app starts from the savepoint of a first one, under its own name, beside it.

The fork has the first app's state and continues the topics of events where the savepoint ends. Its name, epochs, lanes,
markers, control topic and savepoints are its own: neither app fences the other or writes the other's output. Control
records that the first app has read are in the state; the control topic of the fork is read from its beginning.
"""

from __future__ import annotations

from dataclasses import replace

from streamcore.errors import ConfigError
from streamcore.savepoint.repository import Savepoint, SavepointRepository
from streamcore.storage import ObjectStore


def as_fork(savepoint: Savepoint, app: str, control_topic: str) -> Savepoint:
    """Return the savepoint as one of the app that forks it. ``app``: its name.

    Its epoch is 0, below those of every app: the epochs of the fork are its own, and begin at 1.
    """
    manifest = savepoint.manifest
    position = manifest.next_position
    offsets = {place: at for place, at in position.offsets.items() if place[0] != manifest.app.control_topic}
    forked = replace(
        manifest,
        epoch=0,
        app=replace(manifest.app, name=app, control_topic=control_topic),
        position=replace(position, offsets=offsets).to_json(),
    )
    return Savepoint(savepoint.folder, forked)


def find_savepoint(place: ObjectStore, name: str, app: str, control_topic: str, fork_of: str | None) -> Savepoint:
    """Return a savepoint of the app, or else one of the app that it is a fork of. ``ConfigError`` if there is none.

    ``place``: the folder with the savepoints of all apps.
    """
    own = SavepointRepository(place, app)
    if fork_of == app:
        raise ConfigError(f"app {app}: it cannot be a fork of itself; give the fork another name, in its setting app")
    if fork_of is None or own.find(name) is not None:
        return own.get(name)
    return as_fork(SavepointRepository(place, fork_of).get(name), app, control_topic)
