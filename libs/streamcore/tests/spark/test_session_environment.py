"""The thread that opens the session adds no variable to the environment, which other threads read meanwhile."""

from __future__ import annotations

import importlib.util
import os
import re
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


def test_pyspark_adds_no_further_variable() -> None:
    spec = importlib.util.find_spec("pyspark.core.context")
    assert spec is not None
    assert spec.origin is not None
    added = re.findall(r'os\.environ\["(\w+)"\] =', Path(spec.origin).read_text(encoding="utf-8"))
    assert {*added} == {*session._SET_BY_PYSPARK}
