"""Where the compiled code comes from, and which processes load it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

DECODE = """
import pyarrow as pa
from streamcore.decode.formats import Json
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.types import RawBatch
from streamcore.schema import StreamSchema

fields = {"at": "timestamp not null", "n": "long"}
stream = StreamSchema.parse({"name": "t", "event_time": "at", "keys": [[]], "fields": fields})
decoder = Json().decoder(stream, limits=DecodeLimits(), extra_fields=ExtraFields.REJECT)
position = pa.array([0])
batch = RawBatch(pa.array([b'{"at":1,"n":7}'], pa.binary()), position.cast(pa.int32()), position, 1)
"""
RUN = "assert decoder.decode(batch).events['n'].to_pylist() == [7]\n"
COMPILED = "from streamcore.decode.walk.compiler import compiled_here\nprint(*compiled_here)\n"
FOLDER = """
import logging, pathlib, sys
from streamcore.decode.walk import code_folder
logging.basicConfig(format="%(message)s")
code_folder.folder = lambda: pathlib.Path(sys.argv[1])
"""
#: A function that takes less time to compile than the walk.
SMALL = """
from streamcore.decode.walk.compiler import compiled_here, entry
@entry("int64(int64)")
def double(number):
    return 2 * number
assert double(4) == 8
print(*compiled_here)
"""
READ_ONLY = """
from numba.core import caching
def refuse(*_):
    raise PermissionError("read-only file system")
caching._CacheLocator.ensure_cache_path = caching.IndexDataCacheFile._open_for_write = refuse
"""


def run(code: str, *arguments: Path) -> tuple[Sequence[str], str]:
    """Run a program; return the words of its output, and what it logs."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split(), done.stderr


@pytest.mark.slow
def test_a_process_that_only_plans_loads_no_compiler() -> None:
    code = f"{DECODE}\nimport sys\nimport rulecore.testing.in_process\nprint('numba' in sys.modules)"
    assert run(code)[0] == ["False"]


@pytest.mark.slow
def test_a_worker_compiles_nothing_once_the_code_is_prepared() -> None:
    subprocess.run([sys.executable, "-m", "streamcore.decode.walk"], check=True, capture_output=True)
    assert run(DECODE + RUN + COMPILED) == ([], "")


@pytest.mark.slow
def test_without_prepared_code_a_process_compiles_says_so_and_keeps_the_code(tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    compiled, log = run(FOLDER + SMALL, folder)
    assert compiled == ["double"]
    assert f"compiling double: no code of it in {folder}" in log
    assert run(FOLDER + READ_ONLY + SMALL, folder) == ([], "")


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_stops_no_process(tmp_path: Path) -> None:
    compiled, log = run(FOLDER + READ_ONLY + SMALL, tmp_path / "compiled")
    assert compiled == ["double"]
    assert "the compiled code is not kept: read-only file system; each process compiles it" in log
