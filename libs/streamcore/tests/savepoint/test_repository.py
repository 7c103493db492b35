"""Savepoints in a folder or a bucket: complete or absent, with every byte verified."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamcore.cuts.cut_clock import CutClock
from streamcore.errors import ConfigError, CorruptState
from streamcore.offsets import StreamOffsets
from streamcore.savepoint import Savepoint, SavepointManifest, SavepointRepository, apps, check_name, default_name
from streamcore.savepoint.create import SavepointPosition, write_manifest
from streamcore.savepoint.state_files import read_parts, save_shard
from streamcore.storage import ObjectStore
from streamcore.topology.simulation import Simulation
from tests.harness.apps.versioned_shop import Version, simulated


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulated(Version(), shards=2)


class Crash(BaseException):
    """Stands for a power failure."""


@dataclass
class Breaking:
    """An object store that crashes at the write of its n-th file."""

    place: ObjectStore
    left: ClassVar[int] = 0

    @property
    def url(self) -> str:
        return self.place.url

    def under(self, name: str) -> Breaking:
        return Breaking(self.place.under(name))

    def write(self, name: str, content: bytes) -> None:
        if Breaking.left == 0:
            raise Crash
        Breaking.left -= 1
        self.place.write(name, content)

    def write_parts(self, name: str, parts: Sequence[bytes]) -> None:
        self.write(name, b"".join(parts))

    def read(self, name: str) -> bytes | None:
        return self.place.read(name)

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        return self.place.read_range(name, start, size)

    def discard(self, name: str) -> None:
        self.place.discard(name)

    def folders(self) -> list[str]:
        return self.place.folders()

    def files(self) -> list[str]:
        return self.place.files()

    def remove_unfinished(self) -> None:
        self.place.remove_unfinished()

    def remove(self) -> None:
        self.place.remove()


def take(simulation: Simulation, savepoints: SavepointRepository, name: str, batch: int = 2) -> Savepoint:
    folder, app = savepoints.create(name), simulation.local.app
    receipts = [save_shard(folder, app, stage, shard, blobs) for (stage, shard), blobs in simulation.blobs.items()]
    moment = SavepointPosition(
        1, batch, StreamOffsets(CutClock.at(17), {("orders", 0): 90, ("shop.control", 0): 1}), 1_000 * batch
    )
    return Savepoint(folder, write_manifest(folder, name, app, moment, receipts))


def test_a_savepoint_reads_back_complete(simulation: Simulation, any_place: ObjectStore) -> None:
    savepoints = SavepointRepository(any_place, "shop")
    savepoint = take(simulation, savepoints, "one")
    found = savepoints.get("one")
    assert found.manifest == savepoint.manifest
    assert found.manifest.digest == savepoint.manifest.digest
    assert found.verify() == []
    assert found.manifest.next_position == StreamOffsets(CutClock.at(17), {("orders", 0): 90, ("shop.control", 0): 1})
    assert {table.owner for table in found.manifest.app.tables} == {"sums", "running", "digits", "join"}
    every = [part for file in found.manifest.files for part in read_parts(found.content(file), file.path)]
    assert sum(part.rows for part in every) == found.manifest.total_rows > 0
    assert all(part.frame.height == part.rows for part in every)


def test_a_manifest_does_not_contain_where_it_was_created(simulation: Simulation, any_place: ObjectStore) -> None:
    savepoint = take(simulation, SavepointRepository(any_place, "shop"), "one")
    text = savepoint.manifest.to_json().decode()
    assert any_place.url not in text
    assert "spark" not in text.lower()


@pytest.mark.slow
def test_a_crash_during_a_savepoint_leaves_no_savepoint_and_its_name_free(
    simulation: Simulation, any_place: ObjectStore
) -> None:
    whole = len(take(simulation, SavepointRepository(any_place.under("whole"), "shop"), "one").manifest.files) + 1
    for written in range(whole):
        Breaking.left = written
        savepoints = SavepointRepository(Breaking(any_place), "shop")
        with pytest.raises(Crash):
            take(simulation, savepoints, "one")
        assert savepoints.find("one") is None
        assert [*savepoints] == []
        assert "shop" not in apps(any_place)
    Breaking.left = whole
    assert take(simulation, SavepointRepository(Breaking(any_place), "shop"), "one").verify() == []


@given(data=st.data())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_verification_names_the_file_with_a_changed_byte(
    data: st.DataObject, simulation: Simulation, any_place: ObjectStore
) -> None:
    place = any_place.under(uuid.uuid4().hex)
    savepoint = take(simulation, SavepointRepository(place, "shop"), "one")
    file = data.draw(st.sampled_from(savepoint.manifest.files))
    content = bytearray(savepoint.content(file))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    savepoint.folder.write(file.path, bytes(content))
    assert savepoint.verify() == [f"{file.path} is not what was written: its digest differs"]
    with pytest.raises(CorruptState, match="its digest differs"):
        savepoint.content(file)


def test_verification_names_missing_and_truncated_files(simulation: Simulation, any_place: ObjectStore) -> None:
    savepoint = take(simulation, SavepointRepository(any_place, "shop"), "one")
    first, second, *_ = savepoint.manifest.files
    savepoint.folder.discard(first.path)
    savepoint.folder.write(second.path, savepoint.content(second)[:-1])
    assert savepoint.verify() == [
        f"{first.path} is missing",
        f"{second.path} has {second.bytes - 1} bytes, not {second.bytes}",
    ]


@pytest.mark.slow
def test_a_savepoint_name_is_unique_and_is_free_again_after_deletion(
    simulation: Simulation, any_place: ObjectStore
) -> None:
    savepoints = SavepointRepository(any_place, "shop")
    take(simulation, savepoints, "one")
    take(simulation, savepoints, "two", batch=1)
    with pytest.raises(ConfigError, match="there is a savepoint one"):
        savepoints.create("one")
    assert [one.manifest.name for one in savepoints] == ["two", "one"], "oldest first"
    savepoints.delete("one")
    assert [one.manifest.name for one in savepoints] == ["two"]
    with pytest.raises(ConfigError, match="no savepoint one; there are two"):
        savepoints.delete("one")
    take(simulation, savepoints, "one")


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a" * 64, "a b"])
def test_a_savepoint_name_that_is_not_a_label_is_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match="a name has a-z, 0-9 and -"):
        check_name(name)


def test_a_savepoint_without_a_name_is_named_after_app_batch_and_epoch() -> None:
    assert check_name(default_name("shop", 12, 3)) == "shop-b12-e3"


@pytest.mark.parametrize(
    ("harm", "error", "text"),
    [
        (lambda d: {**d, "format": 9}, ConfigError, "format 9, this program reads 3, 4, 5"),
        (lambda d: {k: v for k, v in d.items() if k != "files"}, CorruptState, "does not have the digest"),
        (lambda d: [d], CorruptState, "not a JSON object"),
    ],
)
@pytest.mark.quick_cases(2)
def test_an_invalid_manifest_is_rejected(
    harm: object, error: type[Exception], text: str, simulation: Simulation, any_place: ObjectStore
) -> None:
    savepoint = take(simulation, SavepointRepository(any_place, "shop"), "one")
    assert callable(harm)
    with pytest.raises(error, match=text):
        SavepointManifest.from_json(orjson.dumps(harm(orjson.loads(savepoint.manifest.to_json()))), "manifest.json")
