"""A release: the part of a spec that determines the pods. Another release is an upgrade; the rest of the spec is
policy.

A release contains the whole spec, because a rollback must create the pods of the old release after the resource has
changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from headgate_operator.resources.base import STORED
from headgate_operator.resources.spec import StreamAppSpec

#: The entries of a spec that do not determine the pods.
_POLICY = {"autoscaling", "upgrade", "savepoints", "restore", "state", "deletion_policy", "deletion_deadline"}


@dataclass(frozen=True, slots=True)
class Release:
    """A release of an app.

    Two releases with one ``shape`` differ in the service's settings (``config``) at most, so a driver may be able to
    change from one to the other without a restart.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    revision: Annotated[str, Field(description="Digest of everything that makes pods.")]
    shape: Annotated[
        str,
        Field(description="Digest of everything that makes pods except the settings of the service."),
    ]
    version: Annotated[str, Field(description="Version for people: the tag of the image.")]
    generation: Annotated[
        int,
        Field(description="Generation of the StreamApp that this release was made from."),
    ]
    spec: Annotated[
        StreamAppSpec,
        Field(description="Complete spec of the release, so that a rollback can make its pods again."),
    ]


def release_for(spec: StreamAppSpec, generation: int) -> Release:
    """Return the release of a spec.

    A changed ``upgrade.nonce`` changes the revision, so that a rejected upgrade is retried.
    """
    document = spec.model_dump(mode="json", by_alias=True, exclude=_POLICY) | {"nonce": spec.upgrade.nonce}
    shape = {name: entry for name, entry in document.items() if name != "config"}
    return Release(_digest(document), _digest(shape), image_version(spec.image), generation, spec)


def image_version(image: str) -> str:
    """Return the tag of an image: ``registry:5000/headgate:1.4.0`` gives ``1.4.0``. Without a tag: the first 12
    characters of its digest, or ``latest``.
    """
    if "@" in image:
        return image.split("@", 1)[1].rsplit(":", maxsplit=1)[-1][:12]
    name = image.rsplit("/", 1)[-1]
    return name.split(":", 1)[1] if ":" in name else "latest"


def _digest(entries: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()[:10]
