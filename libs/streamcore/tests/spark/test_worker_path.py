"""Processes that Spark starts import the installed pyspark, which is compiled, and not the archive before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from streamcore.spark import session
from streamcore.spark.executors import DriverPod, Executors
from streamcore.spark.session import SparkSettings

pytestmark = pytest.mark.spark

HOME = Path(pyspark.__file__).parent
ARCHIVE = HOME / "python" / "lib" / "pyspark.zip"
PROGRAM = Path(session.__file__).with_name("worker_python.sh")
CODE = "import pyspark, sys; print(pyspark.__file__, *sys.argv[1:])"


def _import_pyspark(program: Path, own_path: str) -> str:
    """Return from where the program imports pyspark and its arguments, started with the path that Spark gives it."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ARCHIVE), own_path]),
        "STREAMCORE_PYTHON": sys.executable,
        "STREAMCORE_PYTHONPATH": own_path,
    }
    command = [str(program), "-c", CODE, "an argument"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def test_a_worker_imports_the_installed_pyspark() -> None:
    assert ARCHIVE.exists()
    assert _import_pyspark(Path(sys.executable), "").startswith(str(ARCHIVE))
    assert _import_pyspark(PROGRAM, "") == f"{HOME / '__init__.py'} an argument"


def test_a_worker_has_the_path_of_the_driver(tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    other.write_bytes(ARCHIVE.read_bytes())
    assert _import_pyspark(PROGRAM, str(other)).startswith(str(other))


def test_workers_on_the_drivers_machine_start_with_the_program() -> None:
    assert session._worker_python(SparkSettings(None)) == str(PROGRAM)
    pod = DriverPod("shop", "rules", "10.0.0.1", "")
    executors = Executors(pod, "headgate:1", Path("pod.yaml"), 2, 2, "1g", "1g", "1")
    assert session._worker_python(SparkSettings(None, executors=executors)) == sys.executable
