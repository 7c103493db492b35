"""``headgate savepoint`` and ``headgate state`` on savepoints of a rules app."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.main import run
from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.app import App
from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.epochs import EpochStore
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.leases.acquire import lease_for
from streamcore.offsets import StreamOffsets
from streamcore.savepoint import Savepoint, SavepointRepository
from streamcore.savepoint.create import SavepointPosition
from streamcore.storage import LocalObjectStore
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.versioned_shop import initial_of, save
from tests.harness.servers.storage_locations import s3_place

CUTS, EVENTS = 6, 40


@dataclass(frozen=True)
class SavedApp:
    """An app with its settings and savepoints."""

    folder: Path
    file: Path
    app: App

    @property
    def savepoints(self) -> SavepointRepository:
        return SavepointRepository(LocalObjectStore(self.folder / "savepoints"), self.app.name)

    def run(self, *words: str) -> int:
        """Run a command that needs the app."""
        where = ["--service", "rules", "--settings", str(self.file), "--savepoints", str(self.folder / "savepoints")]
        return run(["savepoint", *words, *where])

    def run_on_savepoints(self, *words: str) -> int:
        """Run a command that needs only the savepoints."""
        return run([*words, "--savepoints", str(self.folder / "savepoints"), "--app", self.app.name])


def new_saved_app(folder: Path, **settings: object) -> SavedApp:
    schema = orders.write_streams(folder)[0]
    document = {
        "app": "shop",
        "kafka": {"bootstrap": "nowhere:1"},
        "streams": [{"schema_file": str(schema), "topic": "orders"}],
        "checkpoint": str(folder / "e1"),
        "jars": str(folder),
        "shards": 2,
        **settings,
    }
    file = folder / "settings.json"
    file.write_text(json.dumps(document))
    return SavedApp(folder, file, build_app(RulesSettings.model_validate(document)))


def records(cut: int) -> Sequence[RawRecord]:
    every = orders.orders(CUTS * EVENTS, seed=1, users=12)
    some = every[cut * EVENTS : (cut + 1) * EVENTS]
    published = [] if cut else rules.all_kinds()
    first = [control_record(n, rule.id, rule.value) for n, rule in enumerate(published)]
    return [*first, *(RawRecord(0, 0, cut * EVENTS + n, order.value) for n, order in enumerate(some))]


def run_cuts(local: InProcessApp, cuts: Sequence[int]) -> list[tuple[str, bytes | None, bytes | None]]:
    clock_ms = orders.START_MS + orders.DAY_MS
    found = [record for cut in cuts for record in local.cut(records(cut), clock_ms + cut)]
    return [(record.lane, record.key, record.value) for record in found]


def take_savepoint(at: SavedApp, local: InProcessApp, name: str = "one", batch: int = 3) -> Savepoint:
    moment = SavepointPosition(
        1, batch, StreamOffsets(CutClock.at(5), {("orders", 0): 120, ("shop.control", 0): 6}), 1_790_000_000_000
    )
    return save(at.app, local.blobs, at.folder / "savepoints", moment, name)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> SavedApp:
    at = new_saved_app(tmp_path_factory.mktemp("shop"))
    local = InProcessApp(at.app)
    run_cuts(local, range(3))
    take_savepoint(at, local)
    take_savepoint(at, local, "two", batch=4)
    return at


@pytest.mark.slow
def test_a_rules_app_restored_from_a_savepoint_gives_the_alerts_of_an_uninterrupted_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, whole = new_saved_app(tmp_path), []
    uninterrupted = InProcessApp(at.app)
    for cut in range(CUTS):
        whole.append(run_cuts(uninterrupted, [cut]))
    before = InProcessApp(at.app)
    assert [run_cuts(before, [cut]) for cut in range(3)] == whole[:3]
    take_savepoint(at, before)
    assert at.run("plan", "one", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "one",
        "verdict": "compatible",
        "possible": True,
        "reasons": [],
    }
    assert at.run("restore", "one", "--checkpoint", str(tmp_path / "e2")) == 0
    assert "epoch 2, continues after batch 3" in capsys.readouterr().out
    after = InProcessApp(at.app, initial_of(tmp_path / "e2", at.app))
    after.next_offsets = before.next_offsets
    assert [sorted(run_cuts(after, [cut])) for cut in range(3, CUTS)] == [sorted(one) for one in whole[3:]]
    assert any(lane == "alerts" for one in whole[3:] for lane, _, _ in one)


def test_savepoints_are_listed_and_shown(shop: SavedApp, capsys: pytest.CaptureFixture[str]) -> None:
    assert shop.run_on_savepoints("savepoint", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "BATCH", "EPOCH", "TAKEN", "VERSION", "ROWS", "SIZE"]
    assert [line.split()[:3] for line in lines[1:]] == [["one", "3", "1"], ["two", "4", "1"]]
    assert shop.run_on_savepoints("savepoint", "show", "one") == 0
    text = capsys.readouterr().out
    assert "savepoint one of app shop: after batch 3 of epoch 1" in text
    assert "continues  orders at 0: 120" in text
    assert shop.run_on_savepoints("savepoint", "show", "one", "-o", "json") == 0
    manifest_text = json.loads(capsys.readouterr().out)
    assert manifest_text["topics"] == {"orders": {"0": 120}, "shop.control": {"0": 6}}
    assert {"rules"} <= {table["table"] for table in manifest_text["tables"]}


def test_every_command_takes_the_app_and_its_folder_from_service_and_settings(
    shop: SavedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    service, settings = ["--service", "rules"], ["--settings", str(shop.file)]
    for words in (["savepoint", "list"], ["savepoint", "show", "one"], ["savepoint", "verify", "one"]):
        assert shop.run_on_savepoints(*words) == 0
        named = capsys.readouterr().out
        assert run([*words, *service, *settings]) == 0
        assert capsys.readouterr().out == named
    assert run(["savepoint", "verify", "one", *service]) == 2
    assert "--service and --settings belong together" in capsys.readouterr().err


def test_rows_of_state_are_shown_and_found(shop: SavedApp, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_state(shop, "one", "rules", "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["shard"] for row in rows} <= {0, 1}
    assert any("many-payments" in row["key"] for row in rows)
    key = rows[0]["key"]
    assert run_state(shop, "one", "rules", "--where", f"key={key}", "--shard", "1", "-o", "json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["key"], found["shard"]) == (key, 1)
    assert run_state(shop, "one", "rules", "--limit", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run_state(shop, "one", "nothing") == 1
    assert "has no table nothing; it has " in capsys.readouterr().err
    assert run_state(shop, "one", "rules", "--where", "nothing=1") == 1
    assert "write COLUMN=VALUE with one of" in capsys.readouterr().err


def run_state(shop: SavedApp, *words: str) -> int:
    return shop.run_on_savepoints("state", "show", *words)


def test_verify_finds_one_changed_byte_and_gives_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = new_saved_app(tmp_path)
    local = InProcessApp(at.app)
    run_cuts(local, [0])
    one = take_savepoint(at, local)
    assert at.run_on_savepoints("savepoint", "verify", "one") == 0
    file = tmp_path / "savepoints" / "shop" / "one" / one.manifest.files[0].path
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    capsys.readouterr()
    assert at.run_on_savepoints("savepoint", "verify", "one", "-o", "json") == 1
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert faults == [f"{one.manifest.files[0].path} is not what was written: its digest differs"]
    assert at.run("restore", "one", "--checkpoint", str(tmp_path / "e2")) == 1
    assert "its digest differs" in capsys.readouterr().err


def test_restore_divides_the_state_among_another_number_of_shards(
    shop: SavedApp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = new_saved_app(tmp_path, shards=3)
    where = ["--service", "rules", "--settings", str(other.file), "--savepoints", str(shop.folder / "savepoints")]
    assert run(["savepoint", "plan", "one", *where]) == 0
    reason = "compatible: 3 shards of 128 key groups divide its state, which 2 shards of 128 key groups had"
    assert reason in capsys.readouterr().out
    assert run(["savepoint", "restore", "one", "--checkpoint", str(tmp_path / "e2"), *where]) == 0
    assert CheckpointRoot(tmp_path / "e2").identity() == AppIdentity("shop", 3)
    assert [*initial_of(tmp_path / "e2", other.app)] == [(0, 0), (0, 1), (0, 2)]


def test_restore_does_not_overwrite_a_checkpoint_in_use(shop: SavedApp, capsys: pytest.CaptureFixture[str]) -> None:
    to = str(shop.folder / "in-use")
    assert shop.run("restore", "one", "--checkpoint", to) == 0
    assert shop.run("restore", "one", "--checkpoint", to) == 1
    assert "it is in use; a savepoint is restored to a new folder" in capsys.readouterr().err
    assert shop.run("restore", "one", "--checkpoint", str(shop.folder / "low"), "--epoch", "1") == 1
    assert "epoch 1 is not above 1, that of the savepoint" in capsys.readouterr().err


def test_a_deleted_savepoint_is_no_longer_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = new_saved_app(tmp_path)
    local = InProcessApp(at.app)
    run_cuts(local, [0])
    take_savepoint(at, local)
    assert at.run_on_savepoints("savepoint", "delete", "one") == 0
    assert at.run_on_savepoints("savepoint", "show", "one") == 1
    assert "no savepoint one; there is none of this app" in capsys.readouterr().err


def test_an_app_that_has_not_run_has_no_savepoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new_saved_app(tmp_path).run("create", "one") == 1
    assert "the app has not run there yet" in capsys.readouterr().err


def test_the_same_commands_show_restore_and_delete_savepoints_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = s3_place(monkeypatch)
    at = new_saved_app(tmp_path, savepoints=bucket.url)
    local = InProcessApp(at.app)
    run_cuts(local, range(3))
    take_savepoint(at, local)
    made = at.savepoints.get("one").folder
    for name in made.files():
        bucket.under("shop/one").write(name, made.read(name) or b"")
    where = ["--savepoints", bucket.url, "--app", "shop"]
    assert run(["savepoint", "list", *where]) == 0
    assert run(["savepoint", "show", "one", *where]) == 0
    assert run(["savepoint", "verify", "one", *where]) == 0
    service = ["--service", "rules", "--settings", str(at.file)]
    assert run(["savepoint", "plan", "one", *service]) == 0
    assert run(["savepoint", "restore", "one", *service, "--checkpoint", str(tmp_path / "e2")]) == 0
    assert "epoch 2, continues after batch 3" in capsys.readouterr().out
    assert [*initial_of(tmp_path / "e2", at.app)]
    assert run(["savepoint", "delete", "one", *where]) == 0
    assert bucket.files() == []


def test_delete_removes_all_named_savepoints_or_none_unless_missing_ones_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = new_saved_app(tmp_path)
    local = InProcessApp(at.app)
    run_cuts(local, [0])
    for name in ("one", "two", "three"):
        take_savepoint(at, local, name)
    assert at.run_on_savepoints("savepoint", "delete", "one", "none") == 1
    assert "no savepoint none" in capsys.readouterr().err
    assert at.run_on_savepoints("savepoint", "show", "one") == 0
    part = at.folder / "savepoints" / "shop" / "part" / "state"
    part.mkdir(parents=True)
    assert at.run_on_savepoints("savepoint", "delete", "--missing-ok", "one", "none", "part", "two") == 0
    assert [one.manifest.name for one in at.savepoints] == ["three"]
    assert not part.parent.exists()
    assert at.run_on_savepoints("savepoint", "delete", "--missing-ok", "../three") == 1


def test_purge_removes_all_files_of_an_app_unless_a_process_owns_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = new_saved_app(tmp_path, checkpoint=str(tmp_path / "checkpoints" / "shop"))
    root, local = tmp_path / "checkpoints" / "shop", InProcessApp(at.app)
    run_cuts(local, [0])
    take_savepoint(at, local)
    for epoch in (1, 2):
        CheckpointRoot(root / f"e{epoch}").initialise(AppIdentity("shop", 2), epoch=epoch)
    purge = ("savepoint", "purge", "--checkpoint", str(root))
    with lease_for(root / "e2"):
        assert at.run_on_savepoints(*purge) == 1
        assert "in use by" in capsys.readouterr().err
    assert [one.manifest.name for one in at.savepoints] == ["one"]
    assert EpochStore(root).existing() == (1, 2)
    assert run([*purge, "--savepoints", str(tmp_path / "savepoints"), "--app", "other"]) == 1
    assert "belongs to app shop, not other" in capsys.readouterr().err
    assert at.run_on_savepoints(*purge) == 0
    assert "shop: 1 savepoints and 3 checkpoints are removed" in capsys.readouterr().out
    assert not root.exists()
    assert at.run_on_savepoints("savepoint", "list") == 0
    assert at.run_on_savepoints(*purge) == 0


def test_an_epoch_that_begins_during_a_purge_stays_and_its_owner_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at, root = new_saved_app(tmp_path), tmp_path / "checkpoints" / "shop"
    CheckpointRoot(root / "e1").initialise(AppIdentity("shop", 2))
    (root / "standby").mkdir()
    begun, discard_all = lease_for(root / "e2"), SavepointRepository.discard_all

    def meanwhile(savepoints: SavepointRepository) -> int:
        begun.acquire()
        CheckpointRoot(root / "e2").initialise(AppIdentity("shop", 2), epoch=2)
        return discard_all(savepoints)

    purge = ("savepoint", "purge", "--checkpoint", str(root))
    with monkeypatch.context() as patched:
        patched.setattr(SavepointRepository, "discard_all", meanwhile)
        assert at.run_on_savepoints(*purge) == 1
    output = capsys.readouterr().out
    assert (
        f"1 checkpoints are removed; started meanwhile and left in {root}: e2; stop the app, then purge again" in output
    )
    begun.check()
    assert EpochStore(root).existing() == (2,)
    assert (root / "standby").exists(), "its channel"
    begun.release()
    assert at.run_on_savepoints(*purge) == 0
    assert not root.exists()


def test_commands_use_the_newest_epoch_of_an_app_and_do_not_restore_among_its_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = new_saved_app(tmp_path, checkpoint=str(tmp_path / "shop"))
    local = InProcessApp(at.app)
    run_cuts(local, [0])
    take_savepoint(at, local)
    for epoch in (1, 10):
        CheckpointRoot(tmp_path / "shop" / f"e{epoch}").initialise(AppIdentity("shop", 2), epoch=epoch)
    with lease_for(tmp_path / "shop" / "e10"):
        assert at.run("create", "now") == 1
        errors = capsys.readouterr().err
        assert "e10: the app that owns it is controlled by the operator; create a Savepoint" in errors
    assert at.run("restore", "one") == 1
    assert "it holds the checkpoints of epochs 1, 10; name a folder with --checkpoint" in capsys.readouterr().err
    assert at.run("restore", "one", "--checkpoint", str(tmp_path / "elsewhere")) == 0


def test_a_fork_has_its_own_identity_and_continues_where_the_savepoint_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headgate.savepoints.fork._create_topics", lambda _: None
    )  # no broker: tests/end_to_end has one
    at = new_saved_app(tmp_path)
    local = InProcessApp(at.app)
    run_cuts(local, range(3))
    taken = take_savepoint(at, local)
    words = ["--from", "one", "--as", "shop-b", "--set", "max_matches=50", "--write", str(tmp_path / "b.json")]
    where = ["--service", "rules", "--settings", str(at.file), "--savepoints", str(tmp_path / "savepoints")]
    assert run(["fork", *words, *where]) == 0
    assert "a fork of shop" in capsys.readouterr().out
    document = json.loads((tmp_path / "b.json").read_text())
    assert (document["app"], document["max_matches"], document["restore"]) == ("shop-b", 50, {"app": "shop"})
    root = CheckpointRoot(Path(document["checkpoint"]))
    assert root.identity() == AppIdentity("shop-b", 2)
    assert read_epoch(root.epoch_path) == 1
    start = root.offsets.read_start()
    assert start is not None
    assert dict(start.offsets) == {("orders", 0): 120}, "its own control topic is read from the beginning"
    assert taken.manifest.app.name == "shop", "the savepoint is only read"
    # The way of the operator: the settings of the fork find the savepoint by its first app.
    there = ["--service", "rules", "--settings", str(tmp_path / "b.json")]
    assert run(["savepoint", "plan", "one", *there]) == 0
    assert run(["savepoint", "restore", "one", "--checkpoint", str(tmp_path / "e9"), *there]) == 0
    # A copy of the first app's settings that keeps its name.
    (tmp_path / "b.json").write_text(json.dumps({**document, "app": "shop"}))
    assert run(["savepoint", "plan", "one", *there]) == 1
    assert "app shop: it cannot be a fork of itself; give the fork another name" in capsys.readouterr().err


#: Makes one fork, and one for each of its writes that is killed before that write and made again; prints a line of exit
#: statuses for each. The children are forked, for a process of its own would spend its time on imports.
_KILLED_FORKS = """
import os, sys
from pathlib import Path
import headgate.savepoints.fork, headgate_rules.app, streamcore.savepoint.app_description
from headgate.main import run

folder, *words = sys.argv[1:]
left = 1 << 30

def before(event, arguments):
    global left
    change = event in {"os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir"}
    change |= event == "open" and bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR))
    if change and str(arguments[0]).startswith(folder):
        if left == 0:
            os._exit(9)
        left -= 1

def fork(name, writes):
    global left
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = writes
    place = ["--write", f"{folder}/{name}/settings.json", "--checkpoint", f"{folder}/{name}/checkpoint"]
    os._exit(run(["fork", *words, *place]))

headgate.savepoints.fork._create_topics = lambda _: None
sys.addaudithook(before)
whole = fork("whole", left)
number = 0
while True:
    name = f"n{number:04}"
    first = fork(name, number)
    if first != 9:
        break
    complete = Path(folder, name, "checkpoint", "app.json").exists()
    print(name, 0 if complete else fork(name, 1 << 30), flush=True)
    number += 1
sys.exit(whole or first)
"""


@pytest.mark.slow
def test_a_fork_that_is_killed_before_any_of_its_writes_is_made_by_the_next_attempt(tmp_path: Path) -> None:
    at = new_saved_app(tmp_path)
    local = InProcessApp(at.app)
    run_cuts(local, range(3))
    take_savepoint(at, local)
    where = ["--service", "rules", "--settings", str(at.file), "--savepoints", str(tmp_path / "savepoints")]
    folder = tmp_path / "forks"

    def content(name: str) -> dict[str, bytes]:
        """Return the files of a fork but leases and those of writes that were killed, without its name."""
        files = [p for p in (folder / name).rglob("*") if p.is_file() and "lease" not in p.name and p.suffix != ".tmp"]
        return {str(p.relative_to(folder / name)): p.read_bytes().replace(name.encode(), b"fork") for p in files}

    command = [sys.executable, "-c", _KILLED_FORKS, str(folder), "--from", "one", "--as", "shop-b", *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed = [line.split() for line in done.stdout.splitlines() if line.startswith("n0")]
    assert len(killed) > 10
    whole = content("whole")
    for name, again in killed:
        assert again == "0", f"{name}: {done.stderr}"
        assert content(name) == whole


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--as", "shop"], "give the fork another name"),
        (["--as", "B b"], "app name"),
    ],
)
def test_a_fork_that_cannot_be_is_rejected_and_writes_nothing(
    shop: SavedApp, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--service", "rules", "--settings", str(shop.file), "--savepoints", str(shop.folder / "savepoints")]
    file = tmp_path / "b.json"
    checkpoint = tmp_path / "b"
    more = ["--write", str(file), "--checkpoint", str(checkpoint)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.savepoints.fork._create_topics", lambda _: None)
        assert run(["fork", "--from", "one", *words, *more, *where]) == 1
    assert message in capsys.readouterr().err
    assert not file.exists()
    assert not (checkpoint / "app.json").exists()
