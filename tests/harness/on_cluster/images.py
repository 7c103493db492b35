"""Images of the trials: the product's, and versions of it with a fault, by the builder that ``make image`` uses."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from tests.harness.on_cluster.kubectl import run

_FOLDER = Path(__file__).parents[2] / "cluster" / "images"
IMAGE = os.environ.get("HEADGATE_IMAGE", "")
KAFKA_IMAGE = os.environ.get("HEADGATE_KAFKA_IMAGE", "")
_BUILD = os.environ.get("HEADGATE_IMAGE_BUILD", "docker build -t {image} {context}")


def faulty(fault: str) -> str:
    """Build it; returns its name."""
    name = f"{IMAGE}-{fault.replace('_', '-')}"
    command = shlex.split(_BUILD.replace("{image}", name).replace("{context}", str(_FOLDER)))
    run(*command, "--build-arg", f"BASE={IMAGE}", "--build-arg", f"FAULT={fault}", limit_s=600)
    return name
