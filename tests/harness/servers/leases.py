"""Reads leases, and holds a lease in another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streamcore.storage import checked_json, open_object_store
from streamcore.storage.location import Location

_HOLDER = """
import sys, time
from streamcore.leases.acquire import lease_for
from streamcore.storage.location import location
lease_for(location(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def another_process(root: Location) -> Iterator[subprocess.Popen[str]]:
    """Return a process that holds the lease."""
    process = subprocess.Popen([sys.executable, "-c", _HOLDER, str(root)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def record(root: str | Location) -> dict[str, object]:
    """Return the record of the lease; empty if there is none."""
    content = open_object_store(root).read("lease.json")
    return {} if content is None else checked_json.parse(content, root)
