"""Images of the trials: the product's, and versions of it with a fault, by the builder that ``make image`` uses."""

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


def faulty(fault: str) -> str:
    """The rules app with a fault of ``faults.py``; its image's name."""
    return _build_image("faults", fault.replace("_", "-"), f"FAULT={fault}")


def counter(version: int) -> str:
    """A version of the app of ``counter.py``, in the place of the sessions app; its image's name."""
    return _build_image("counter", f"counter-{version}", f"VERSION={version}")


def _build_image(folder: str, suffix: str, argument: str) -> str:
    name = f"{IMAGE}-{suffix}"
    command = shlex.split(_BUILD.replace("{image}", name).replace("{context}", str(_FOLDER / folder)))
    run(*command, "--build-arg", f"BASE={IMAGE}", "--build-arg", argument, limit_s=600)
    return name
