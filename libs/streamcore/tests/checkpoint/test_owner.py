"""An owner counts as gone when its process has ended, and not because the system hides it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from streamcore.leases.owner import Owner

SAYS = """
import json
from streamcore.leases.owner import Owner
print(json.dumps(Owner.me().entries()), flush=True)
input()
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """A process that prints its owner record and waits."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SAYS], text=True, **pipes) as process:  # type: ignore[call-overload]
        yield process
        process.kill()


def read_owner(process: subprocess.Popen[str]) -> Owner:
    assert process.stdout is not None
    return Owner.parse(json.loads(process.stdout.readline()))


def test_an_owner_counts_as_gone_exactly_when_its_process_has_ended(process: subprocess.Popen[str]) -> None:
    there = read_owner(process)
    assert not there.is_gone()
    assert replace(there, process=there.process + "0").is_gone(), "the process id belongs to another process"
    assert not replace(there, machine="far/boot").is_gone()
    process.kill()
    while not there.is_gone():  # before its parent has waited for it
        pass
    process.wait()
    assert there.is_gone()


@pytest.mark.slow
def test_an_owner_that_the_system_hides_counts_as_alive_until_it_ends(
    process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``hidepid`` does for a process of another user."""
    hidden = read_owner(process)
    read = Path.read_text

    def hide_process(path: Path, **how: str) -> str:
        if path == Path(f"/proc/{hidden.pid}/stat"):
            raise FileNotFoundError
        return read(path, **how)

    monkeypatch.setattr(Path, "read_text", hide_process)
    assert not hidden.is_gone()
    process.kill()
    process.wait()
    assert hidden.is_gone()
