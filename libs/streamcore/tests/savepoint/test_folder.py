"""Savepoints in a folder: complete or not there, and every byte of them counts."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError, CorruptState
from streamcore.position import Position
from streamcore.savepoint import Savepoint, SavepointManifest, Savepoints, apps, check_name, default_name
from streamcore.savepoint.parts import cells_of, live, read_parts, write_shard
from streamcore.savepoint.writing import Moment, finish
from streamcore.storage import LocalFolder, open_folder
from streamcore.topology.simulation import Simulation
from tests.harness.savepoints import Version, rows


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    made = Simulation(Version().topology("shop"), shards=2)
    for cut in range(3):
        made.cut(rows(cut), clock_ms=cut)
    return made


class Crash(BaseException):
    """As good as a power cut."""


class Breaking(LocalFolder):
    """Crashes when it is asked to write its n-th file."""

    left = 0

    def under(self, name: str) -> Breaking:
        return Breaking(self.path / name)

    def write(self, name: str, content: bytes) -> None:
        if Breaking.left == 0:
            raise Crash
        Breaking.left -= 1
        super().write(name, content)


def take(simulation: Simulation, savepoints: Savepoints, name: str, batch: int = 2) -> Savepoint:
    folder, app = savepoints.begin(name), simulation.local.app
    receipts = [
        write_shard(folder, stage, shard, live(app, stage, blobs), cells_of(blobs))
        for (stage, shard), blobs in simulation.blobs.items()
    ]
    moment = Moment(1, batch, Position(17, {("orders", 0): 90, ("shop.control", 0): 1}), 1_000 * batch)
    return Savepoint(folder, finish(folder, name, app, moment, receipts))


def test_what_is_written_is_read_back_whole(simulation: Simulation, tmp_path: Path) -> None:
    savepoints = Savepoints(LocalFolder(tmp_path), "shop")
    made = take(simulation, savepoints, "one")
    found = savepoints.get("one")
    assert found.manifest == made.manifest
    assert found.manifest.digest == made.manifest.digest
    assert found.verify() == []
    assert found.manifest.next_position == Position(17, {("orders", 0): 90, ("shop.control", 0): 1})
    assert {table.owner for table in found.manifest.app.tables} == {"sums", "running", "digits", "join"}
    every = [part for file in found.manifest.files for part in read_parts(found.content(file), file.path)]
    assert sum(part.rows for part in every) == found.manifest.total_rows > 0
    assert all(part.frame.height == part.rows for part in every)


def test_nothing_in_a_manifest_says_where_it_was_made(simulation: Simulation, tmp_path: Path) -> None:
    made = take(simulation, Savepoints(LocalFolder(tmp_path), "shop"), "one")
    text = made.manifest.to_json().decode()
    assert str(tmp_path) not in text
    assert "spark" not in text.lower()


def test_a_crash_while_it_is_written_leaves_no_savepoint_and_its_name_free(
    simulation: Simulation, tmp_path: Path
) -> None:
    whole = len(take(simulation, Savepoints(LocalFolder(tmp_path / "whole"), "shop"), "one").manifest.files) + 1
    for written in range(whole):
        Breaking.left = written
        savepoints = Savepoints(Breaking(tmp_path), "shop")
        with pytest.raises(Crash):
            take(simulation, savepoints, "one")
        assert savepoints.find("one") is None
        assert [*savepoints] == []
        assert "shop" not in apps(LocalFolder(tmp_path))
    Breaking.left = whole
    assert take(simulation, Savepoints(Breaking(tmp_path), "shop"), "one").verify() == []


@given(data=st.data())
@settings(max_examples=30)
def test_a_byte_that_is_not_what_was_written_is_found_and_its_file_named(
    data: st.DataObject, simulation: Simulation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("savepoints")
    made = take(simulation, Savepoints(LocalFolder(place), "shop"), "one")
    file = data.draw(st.sampled_from(made.manifest.files))
    path = place / "shop" / "one" / file.path
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    assert made.verify() == [f"{file.path} is not what was written: its digest differs"]
    with pytest.raises(CorruptState, match="its digest differs"):
        made.content(file)


def test_a_file_that_is_missing_or_cut_short_is_named(simulation: Simulation, tmp_path: Path) -> None:
    made = take(simulation, Savepoints(LocalFolder(tmp_path), "shop"), "one")
    first, second, *_ = made.manifest.files
    (tmp_path / "shop" / "one" / first.path).unlink()
    cut = tmp_path / "shop" / "one" / second.path
    cut.write_bytes(cut.read_bytes()[:-1])
    assert made.verify() == [
        f"{first.path} is missing",
        f"{second.path} has {second.bytes - 1} bytes, not {second.bytes}",
    ]


def test_a_name_is_given_once_and_is_free_again_after_deletion(simulation: Simulation, tmp_path: Path) -> None:
    savepoints = Savepoints(LocalFolder(tmp_path), "shop")
    take(simulation, savepoints, "one")
    take(simulation, savepoints, "two", batch=1)
    with pytest.raises(ConfigError, match="there is a savepoint one"):
        savepoints.begin("one")
    assert [one.manifest.name for one in savepoints] == ["two", "one"], "the oldest first"
    savepoints.delete("one")
    assert [one.manifest.name for one in savepoints] == ["two"]
    with pytest.raises(ConfigError, match="no savepoint one; there are two"):
        savepoints.delete("one")
    take(simulation, savepoints, "one")


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a" * 64, "a b"])
def test_a_name_that_is_no_label_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a name is small letters, digits and -"):
        check_name(name)


def test_a_savepoint_without_a_name_gets_one_of_app_batch_and_epoch() -> None:
    assert check_name(default_name("shop", 12, 3)) == "shop-b12-e3"


@pytest.mark.parametrize(
    ("harm", "error", "text"),
    [
        (lambda d: {**d, "format": 9}, ConfigError, "format 9, this program reads 1"),
        (lambda d: {k: v for k, v in d.items() if k != "files"}, CorruptState, "files: Field required"),
        (lambda d: [d], ConfigError, "format None"),
    ],
)
def test_a_manifest_that_is_none_of_ours_is_refused(
    harm: object, error: type[Exception], text: str, simulation: Simulation, tmp_path: Path
) -> None:
    made = take(simulation, Savepoints(LocalFolder(tmp_path), "shop"), "one")
    assert callable(harm)
    with pytest.raises(error, match=text):
        SavepointManifest.from_json(orjson.dumps(harm(orjson.loads(made.manifest.to_json()))), "manifest.json")


def test_an_address_that_is_no_folder_is_refused() -> None:
    with pytest.raises(ConfigError, match="give a path"):
        open_folder("ftp://host/place")
