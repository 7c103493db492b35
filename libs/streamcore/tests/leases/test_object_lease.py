"""The lease of a checkpoint in a bucket: guarantees that depend on conditional writes, on a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.leases.object import Conditional, ObjectLease
from streamcore.storage.checked_json import encode
from streamcore.storage.s3 import S3ObjectStore
from tests.harness.servers.leases import record
from tests.harness.servers.storage_locations import s3_place


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> S3ObjectStore:
    return s3_place(monkeypatch)


@dataclass
class Passing:
    """Passes everything on. The classes below stand in front of a real server and change one thing."""

    place: S3ObjectStore

    @property
    def url(self) -> str:
        return self.place.url

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        return self.place.read_tagged(name)

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        return self.place.exchange(name, content, tag)


@dataclass
class Careless(Passing):
    """A server that accepts every PUT, whatever its condition."""

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        self.place.write(name, content)
        found = self.place.read_tagged(name)
        return None if found is None else found[1]


class Believing(ObjectLease):
    """A lease that does not check whether its server honours conditions."""

    def _check_server_conditions(self) -> None:
        return


@dataclass
class Unheard(Passing):
    """A server whose responses to some changes are lost although the changes were made."""

    lost: set[int]
    calls: int = 0

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        self.calls += 1
        lost, tag_after = self.calls in self.lost, super().exchange(name, content, tag)
        if lost:
            raise Retryable("no answer")
        return tag_after


@dataclass
class Rejecting(Passing):
    """A server that rejects some changes although their condition holds."""

    rejected: set[int]
    calls: int = 0

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        self.calls += 1
        return None if self.calls in self.rejected else super().exchange(name, content, tag)


@dataclass
class Frozen(Passing):
    """A machine that stands still: meanwhile none of its requests reaches the server."""

    moving: threading.Event = field(default_factory=threading.Event)

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        self.moving.wait()
        return super().read_tagged(name)

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        self.moving.wait()
        return super().exchange(name, content, tag)


def lease(place: Conditional, kind: type[ObjectLease] = ObjectLease, stale_ms: int = 600) -> ObjectLease:
    return kind(place, beat_ms=50, stale_ms=stale_ms)


def write_record_of_another_owner(bucket: S3ObjectStore) -> None:
    """Write the record of an owner on another machine."""
    entries = {"token": "theirs", "host": "far", "machine": "far/boot", "pid": 7, "since": "then", "beat": 1}
    bucket.write("lease.json", encode(entries))


def count_winners(bucket: Conditional, kind: type[ObjectLease], count: int = 8) -> int:
    """Let rivals acquire the lease at the same moment, and return how many succeed."""
    leases = [lease(bucket, kind) for _ in range(count)]
    won, ready = [], threading.Barrier(count)

    def rival(one: ObjectLease) -> None:
        ready.wait()
        try:
            one.acquire()
        except ConfigError:
            return
        won.append(one)

    threads = [threading.Thread(target=rival, args=(one,)) for one in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in leases:
        one.release()
    return len(won)


def test_exactly_one_rival_acquires_a_free_or_abandoned_lease(bucket: S3ObjectStore) -> None:
    for _ in range(3):
        assert count_winners(bucket, ObjectLease) == 1, "released"
        write_record_of_another_owner(bucket)
        assert count_winners(bucket, ObjectLease) == 1, "stale"
        bucket.discard("lease.json")
        assert count_winners(bucket, ObjectLease) == 1, "new"


def test_without_conditional_writes_several_rivals_acquire_the_lease(bucket: S3ObjectStore) -> None:
    """The test above can fail."""
    assert max(count_winners(Careless(bucket.under(str(n))), Believing) for n in range(5)) > 1


def test_a_server_that_ignores_conditions_is_detected(bucket: S3ObjectStore) -> None:
    with pytest.raises(ConfigError, match="does not check the conditions of a PUT"):
        lease(Careless(bucket)).acquire()
    with lease(bucket) as after:
        after.check()


def test_an_owner_with_heartbeats_keeps_its_lease(bucket: S3ObjectStore) -> None:
    write_record_of_another_owner(bucket)
    stop = threading.Event()

    def beat() -> None:
        number = 1
        while not stop.wait(0.2):
            number += 1
            bucket.write("lease.json", encode({**record(bucket.url), "beat": number}))

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with pytest.raises(ConfigError, match="in use by process 7 on far"):
            lease(bucket, stale_ms=20_000).acquire()
    finally:
        stop.set()
        beating.join()
    assert record(bucket.url)["token"] == "theirs"


def test_an_owner_without_heartbeats_is_replaced_and_fenced_when_it_resumes(bucket: S3ObjectStore) -> None:
    machine = Frozen(bucket)
    machine.moving.set()
    theirs = lease(machine)
    theirs.acquire()
    theirs.check()
    machine.moving.clear()
    began = time.monotonic()
    with lease(bucket) as ours:
        assert time.monotonic() - began >= 0.6, "the lease was observed"
        machine.moving.set()
        with pytest.raises(Fenced, match="the lease of this process was lost"):
            theirs.check()
        time.sleep(0.3)  # several of its heartbeats, all rejected
        ours.check()
        theirs.release()
        ours.check()
    with pytest.raises(Fenced):
        theirs.check()


@pytest.mark.parametrize("thief", [encode({"token": "theirs", "pid": 7, "host": "far"}), b"{", b"", None])
def test_a_stolen_damaged_or_deleted_record_fences_the_owner_before_the_next_batch(
    thief: bytes | None, bucket: S3ObjectStore
) -> None:
    mine = lease(bucket)
    mine.acquire()
    mine.check()
    if thief is None:
        bucket.discard("lease.json")
    else:
        bucket.write("lease.json", thief)
    with pytest.raises(Fenced, match="the lease of this process was lost"):
        mine.check()
    mine.release()
    assert bucket.read("lease.json") == thief, "the record of another owner is not changed"


def test_a_lease_that_is_released_meanwhile_is_acquired(bucket: S3ObjectStore) -> None:
    write_record_of_another_owner(bucket)
    released = encode({**record(bucket.url), "released": 1})
    timer = threading.Timer(0.3, bucket.write, ("lease.json", released))
    timer.start()
    with lease(bucket, stale_ms=20_000) as ours:
        ours.check()
    timer.join()


def test_the_wait_for_another_owner_runs_the_callback_and_there_is_no_wait_without_one(bucket: S3ObjectStore) -> None:
    used: list[str] = []
    write_record_of_another_owner(bucket)
    for where in ("far", "near"):
        one = lease(bucket)
        one.acquire(lambda where=where: used.append(where))  # type: ignore[misc]
        one.release()
    assert used == ["far"]


def test_the_owner_renews_its_record_and_no_two_versions_are_equal(bucket: S3ObjectStore) -> None:
    seen = set()
    for _ in range(2):
        with lease(bucket) as mine:
            for _ in range(10):
                found = bucket.read_tagged("lease.json")
                assert found is not None
                seen.add(found)
                time.sleep(0.06)
            mine.check()
    assert len(seen) > 8
    assert len({tag for _, tag in seen}) == len(seen)


def test_a_lost_response_does_not_lose_the_lease(bucket: S3ObjectStore) -> None:
    server = Unheard(bucket, lost={5, 6, 9})
    mine = lease(server)
    mine.acquire()
    deadline = time.monotonic() + 20
    while server.calls < 14 and time.monotonic() < deadline:
        time.sleep(0.05)
    mine.check()
    beat = record(bucket.url)["beat"]
    time.sleep(0.5)
    assert record(bucket.url)["beat"] != beat, "it still sends heartbeats"
    mine.release()
    assert record(bucket.url)["released"] == 1


def test_an_owner_sends_heartbeats_until_it_reads_that_another_owner_exists(bucket: S3ObjectStore) -> None:
    server = Rejecting(bucket, rejected={5, 6, 7, 8})
    mine = lease(server)
    mine.acquire()
    wait_until(lambda: server.calls > 10)
    mine.check()
    beat = record(bucket.url)["beat"]
    wait_until(lambda: record(bucket.url)["beat"] != beat)
    write_record_of_another_owner(bucket)
    assert mine._beat is not None
    mine._beat.join(10)
    assert not mine._beat.is_alive()
    mine.release()
    assert record(bucket.url)["token"] == "theirs"


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)
