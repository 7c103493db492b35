"""pyarrow finds no pandas where it is hidden, and everything else still can import it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_HIDE = "import sys; from streamcore.wire import no_pandas; no_pandas.hide_from_pyarrow(); "


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
def test_a_driver_loads_all_of_its_modules_without_pandas() -> None:
    load = "import pyarrow as pa, streamcore.spark.runner; pa.array([1]); print('pandas' in sys.modules)"
    assert _run(_HIDE + load) == "False"
    assert _run(f"import sys; {load}") == "True"  # without hiding it


@pytest.mark.slow
def test_pandas_that_is_hidden_from_pyarrow_can_be_imported() -> None:
    assert _run(f"{_HIDE} import pandas; print(pandas.__name__)") == "pandas"


def test_pandas_that_is_blocked_is_not_found() -> None:
    code = "from streamcore.wire import no_pandas; no_pandas.block(); import pandas"
    with pytest.raises(subprocess.CalledProcessError) as error:
        _run(code)
    assert "ModuleNotFoundError: this process runs without pandas" in error.value.stderr
