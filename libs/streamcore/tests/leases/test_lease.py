"""The guarantees of a lease, which are the same in a folder and in a bucket."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest

from streamcore.errors import ConfigError, Fenced
from streamcore.leases.acquire import Lease, LeaseHeld, lease_for
from streamcore.storage import ObjectStore
from streamcore.storage.location import Location, location
from tests.harness.servers.leases import another_process, record

#: All start at the same moment; the one that acquires the lease prints so and keeps it.
RIVAL = """
import sys, time
from streamcore.leases.acquire import lease_for
from streamcore.errors import ConfigError
from streamcore.storage.location import location
lease = lease_for(location(sys.argv[1]), beat_ms=100, stale_ms=1000)
time.sleep(max(0, float(sys.argv[2]) - time.time()))
try:
    lease.acquire()
except ConfigError:
    print("rejected", flush=True)
else:
    print("held", flush=True)
    time.sleep(5)
    lease.check()
"""


@pytest.fixture
def root(any_place: ObjectStore) -> Location:
    return location(any_place.url) / "root"


def test_the_error_for_a_second_owner_names_the_first(root: Location) -> None:
    with another_process(root) as holder:
        pattern = rf"in use by process {holder.pid} on .* since \d{{4}}-.*stop that process first"
        for _ in range(2):
            with pytest.raises(LeaseHeld, match=pattern):
                lease_for(root).acquire()
            assert record(root)["pid"] == holder.pid, "the first owner keeps its lease"


def test_the_lease_of_a_killed_owner_is_free_immediately_on_its_machine(root: Location) -> None:
    with another_process(root) as holder:
        holder.kill()
        holder.wait()
        began = time.monotonic()
        with lease_for(root) as lease:
            lease.check()
            assert time.monotonic() - began < 10, "no wait for a heartbeat on one machine"
            assert record(root)["pid"] == os.getpid()


def test_two_leases_of_one_process_exclude_each_other(root: Location) -> None:
    with lease_for(root, beat_ms=50, stale_ms=2_000) as lease:
        with pytest.raises(ConfigError, match="in use by"):
            lease_for(root, beat_ms=50, stale_ms=2_000).acquire()
        with pytest.raises(ConfigError, match="holds the lease already"):
            lease.acquire()
        lease.check()


def test_a_released_lease_can_be_acquired_again_and_its_former_owner_is_fenced(root: Location) -> None:
    lease, next_one = lease_for(root), lease_for(root)
    for _ in range(2):
        lease.acquire()
        lease.check()
        lease.release()
    lease.release()
    with pytest.raises(Fenced, match="its record is gone"):
        lease.check()
    with next_one:
        with pytest.raises(Fenced, match="took it over"):
            lease.check()
        lease.release()
        next_one.check()


def acquire_concurrently(leases: Sequence[Lease]) -> list[Lease]:
    """Acquire the leases at the same moment, and return those that succeed."""
    won: list[Lease] = []
    ready = threading.Barrier(len(leases))

    def rival(lease: Lease) -> None:
        ready.wait()
        try:
            lease.acquire()
        except ConfigError:
            return
        won.append(lease)

    threads = [threading.Thread(target=rival, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_exactly_one_of_many_threads_acquires_the_lease(root: Location) -> None:
    for _ in range(3):
        won = acquire_concurrently([lease_for(root, beat_ms=50, stale_ms=2_000) for _ in range(8)])
        assert len(won) == 1
        won[0].check()
        won[0].release()


def test_exactly_one_of_many_processes_acquires_the_lease_of_a_killed_one(root: Location) -> None:
    with another_process(root) as holder:
        holder.kill()
        holder.wait()
    command = [sys.executable, "-c", RIVAL, str(root), str(time.time() + 3)]
    rivals = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [rival.communicate(timeout=60)[0] for rival in rivals]
    assert sorted(outputs) == ["held\n", *["rejected\n"] * 3]
    assert [rival.returncode for rival in rivals] == [0] * 4, "the owner is still the owner"


def test_a_heartbeat_too_slow_for_its_own_limit_is_rejected(root: Location) -> None:
    with pytest.raises(ConfigError, match="more than twice"):
        lease_for(root, beat_ms=1_000, stale_ms=2_000)
