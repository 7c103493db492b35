"""Workers import the installed pyspark, which is compiled, and not the archive that Spark puts before it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.spark

HOME = Path(pyspark.__file__).parent
ARCHIVE = str(HOME / "python" / "lib" / "pyspark.zip")


def where(path: list[str]) -> str:
    """From where a process with this path, as Spark starts one, imports pyspark after the daemon has set it right."""
    code = (
        f"import sys; sys.path[:0] = {path!r}\n"
        "from streamcore.spark.worker_daemon import without_archives\n"
        "sys.path[:] = without_archives(sys.path)\n"
        "import pyspark; print(pyspark.__file__)"
    )
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_archive_is_left_out() -> None:
    assert Path(ARCHIVE).exists()
    assert where([ARCHIVE]) == str(HOME / "__init__.py")


def test_an_archive_of_another_spark_stays(tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    other.write_bytes(Path(ARCHIVE).read_bytes())
    assert where([str(other)]).startswith(str(other))
