"""A release: what of a spec makes pods, so that another one is an upgrade. Everything else in a spec is policy.

The whole spec is kept with it, for a rollback has to make the old pods again after the resource says something else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from headgate_operator.resources.base import STORED
from headgate_operator.resources.spec import StreamAppSpec

_POLICY = {"upgrade", "savepoints", "restore", "state", "deletion_policy", "deletion_deadline"}


@dataclass(frozen=True, slots=True)
class Release:
    """``revision``: digest of what makes pods. ``shape``: the same without the service's settings. ``version``: for
    people.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    revision: str
    shape: str
    version: str
    generation: int
    spec: StreamAppSpec


def release_of(spec: StreamAppSpec, generation: int) -> Release:
    """The release that a spec asks for. Changing ``upgrade.nonce`` makes another one, to try a refused one again."""
    said = spec.model_dump(mode="json", by_alias=True, exclude=_POLICY) | {"nonce": spec.upgrade.nonce}
    shape = {name: entry for name, entry in said.items() if name != "config"}
    return Release(_digest(said), _digest(shape), version_of(spec.image), generation, spec)


def version_of(image: str) -> str:
    """``registry:5000/headgate:1.4.0`` to ``1.4.0``; of a digest its first letters; else ``latest``."""
    if "@" in image:
        return image.split("@", 1)[1].rsplit(":", maxsplit=1)[-1][:12]
    name = image.rsplit("/", 1)[-1]
    return name.split(":", 1)[1] if ":" in name else "latest"


def _digest(entries: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:10]
