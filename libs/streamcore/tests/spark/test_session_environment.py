"""The thread that opens the session leaves alone what the main thread reads meanwhile.

It adds no variable to the environment, and pyspark is imported before it starts.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamcore.errors import Permanent
from streamcore.spark import runtime, session
from streamcore.spark.session import SparkSettings


def names_when_the_session_opens(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the variables that are new to the environment when the thread opens the session."""
    found: list[str] = []

    def open_session(app_name: str, settings: SparkSettings) -> None:
        found.extend(os.environ)
        raise RuntimeError("no session is needed")

    with monkeypatch.context() as patch:
        for name in ("PYSPARK_PYTHON", "POLARS_MAX_THREADS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"):
            patch.delenv(name, raising=False)
        patch.setattr(runtime, "open_session", open_session)
        before = {*os.environ}
        started = runtime.Runtime("app", None, SparkSettings(Path("jars")))
        with started, pytest.raises(Permanent, match="no session is needed"):
            started.session()
        return {*found} - before


def test_the_variables_are_there_before_the_thread_opens_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"PYSPARK_PYTHON", "POLARS_MAX_THREADS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"}
    assert names <= names_when_the_session_opens(monkeypatch)
    with monkeypatch.context() as unprotected:
        unprotected.setattr(runtime, "set_environment", lambda _: None)
        assert not names & names_when_the_session_opens(monkeypatch)


#: Prints which modules of pyspark the thread imports that opens the session. Its argument: whether pyspark is imported
#: before it.
IMPORTS = """
import sys
from pathlib import Path
from streamcore.spark import runtime, session

def open_session(app_name, settings):
    before = {*sys.modules}
    session.open_session.__globals__["set_environment"] = stop
    try:
        session.open_session(app_name, settings)
    finally:
        print(*sorted(name for name in {*sys.modules} - before if name.startswith("pyspark")))

def stop(settings):
    raise RuntimeError("no session is needed")

runtime.open_session = open_session
if sys.argv[1] == "False":
    runtime.import_pyspark = lambda: None
with runtime.Runtime("app", None, session.SparkSettings(Path("jars"))) as started:
    try:
        started.session()
    except Exception as error:
        assert "no session is needed" in str(error), error
"""


@pytest.mark.slow
@pytest.mark.parametrize("imported_before", [True, False])
def test_the_thread_that_opens_the_session_imports_no_module_of_pyspark(imported_before: bool) -> None:
    command = [sys.executable, "-c", IMPORTS, str(imported_before)]
    imported = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert ("pyspark.sql" in imported) is not imported_before
    assert bool(imported) is not imported_before


def test_pyspark_adds_no_further_variable() -> None:
    spec = importlib.util.find_spec("pyspark.core.context")
    assert spec is not None
    assert spec.origin is not None
    added = re.findall(r'os\.environ\["(\w+)"\] =', Path(spec.origin).read_text(encoding="utf-8"))
    assert {*added} == {*session._SET_BY_PYSPARK}
