"""Images for tests: the product's, and versions with a fault, by the builder that ``make image`` uses."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.harness.cluster.kubectl import KUBECONFIG, run

_FOLDER = Path(__file__).parents[2] / "cluster" / "images"
IMAGE = os.environ.get("HEADGATE_IMAGE", "")
KAFKA_IMAGE = os.environ.get("HEADGATE_KAFKA_IMAGE", "")
_BUILD = os.environ.get("HEADGATE_IMAGE_BUILD", "docker build -t {image} {context}")

on_a_cluster = pytest.mark.skipif(
    not (KUBECONFIG and IMAGE and KAFKA_IMAGE),
    reason="make cluster-test names a cluster (KUBECONFIG) and the images (HEADGATE_IMAGE, HEADGATE_KAFKA_IMAGE)",
)
long_form = pytest.mark.skipif(
    os.environ.get("HEADGATE_CLUSTER_FULL") != "1", reason="part of the long form: HEADGATE_CLUSTER_FULL=1"
)


def build_faulty_image(fault: str) -> str:
    """Build an image of the rules app with a fault of ``faults.py``; return its name."""
    return _build_image("faults", fault.replace("_", "-"), f"FAULT={fault}")


def build_program_image() -> str:
    """Build an image with the program ``counter.py``; return its name."""
    return _build_image("program", "program")


def _build_image(folder: str, suffix: str, *arguments: str) -> str:
    name = f"{IMAGE}-{suffix}"
    command = shlex.split(_BUILD.replace("{image}", name).replace("{context}", str(_FOLDER / folder)))
    options = [word for argument in (f"BASE={IMAGE}", *arguments) for word in ("--build-arg", argument)]
    run(*command, *options, limit_s=600)
    return name
