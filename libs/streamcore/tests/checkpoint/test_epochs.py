"""Epochs of checkpoints: which exist, which are newer, and which are superseded, in folders and buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.checkpoint import epochs as module
from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.epochs import EpochClaim, EpochProgress, EpochStore, NewerEpochExists
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.errors import ConfigError, Fenced
from streamcore.leases.acquire import lease_for
from streamcore.offsets import StreamOffsets
from streamcore.storage import ObjectStore, open_object_store
from streamcore.storage.atomic_files import discard, list_names, make_folder, remove_entry, write_text
from streamcore.storage.location import Location, location

SHOP = AppIdentity("shop", 2)


def commit(root: CheckpointRoot, last: int, begun: int | None = None) -> None:
    """Commit the batches up to ``last``, and plan those up to ``begun``."""
    for log in ("offsets", "commits"):
        make_folder(root.spark / log)
        for batch in range(last + 1):
            write_text(root.spark / log / str(batch), "v1\n{}\n")
    for batch in range(max(last, -1 if begun is None else begun) + 1):
        root.offsets.write(batch, CutBounds(StreamOffsets(CutClock(), {}), StreamOffsets(CutClock.at(batch), {})))


def make_checkpoint(epochs: EpochStore, epoch: int, last: int = -1, begun: int | None = None) -> CheckpointRoot:
    root = epochs.checkpoint(epoch)
    root.initialise(SHOP, epoch=epoch)
    commit(root, last, begun)
    return root


@pytest.fixture
def epochs(any_place: ObjectStore) -> EpochStore:
    return EpochStore(location(any_place.url) / "shop")


def check_rejected(epochs: EpochStore, claim: EpochClaim) -> EpochProgress:
    before = contents(epochs.root)
    with pytest.raises(NewerEpochExists) as rejection:
        epochs.check_claim(claim)
    assert contents(epochs.root) == before
    return rejection.value.newer


def contents(folder: Location) -> dict[str, bytes | None]:
    """Return the contents that a check must not change; leases have heartbeats and are not among them."""
    place = open_object_store(folder)
    return {name: place.read(name) for name in place.files() if not name.endswith("lease.json")}


def test_only_a_claim_that_allows_it_starts_without_a_checkpoint(epochs: EpochStore) -> None:
    epochs.check_claim(EpochClaim(1, allow_empty=True))
    with pytest.raises(ConfigError, match="there is no checkpoint of epoch 1 to go on from, and it may not begin"):
        epochs.check_claim(EpochClaim(1))
    assert list_names(epochs.root) == []


def test_a_claim_of_an_existing_epoch_continues_it_whatever_its_other_fields(epochs: EpochStore) -> None:
    make_checkpoint(epochs, 2, last=4)
    for claim in (
        EpochClaim(2),
        EpochClaim(2, EpochProgress(1, 0)),
        EpochClaim(2, allow_empty=True),
        EpochClaim(2, discard_newer=True),
    ):
        epochs.check_claim(claim)


def test_a_claim_that_ignores_committed_batches_needs_permission(epochs: EpochStore) -> None:
    make_checkpoint(epochs, 1, last=7)
    assert check_rejected(epochs, EpochClaim(2, allow_empty=True)) == EpochProgress(1, 7)
    assert check_rejected(epochs, EpochClaim(2)) == EpochProgress(1, 7)
    assert check_rejected(epochs, EpochClaim(2, discard_newer=True)) == EpochProgress(1, 7)
    epochs.check_claim(EpochClaim(2, allow_empty=True, discard_newer=True))


def test_only_batches_after_the_savepoint_count_as_newer(epochs: EpochStore) -> None:
    make_checkpoint(epochs, 1, last=7)
    epochs.check_claim(EpochClaim(2, EpochProgress(1, 7)))
    assert check_rejected(epochs, EpochClaim(2, EpochProgress(1, 6))) == EpochProgress(1, 7)
    epochs.check_claim(EpochClaim(2, EpochProgress(1, 6), discard_newer=True))


def test_an_epoch_without_committed_batches_is_skipped(epochs: EpochStore) -> None:
    make_checkpoint(epochs, 1, last=7)
    make_checkpoint(epochs, 2)
    epochs.check_claim(EpochClaim(3, EpochProgress(1, 7)))
    assert check_rejected(epochs, EpochClaim(3, EpochProgress(1, 6))) == EpochProgress(2, -1)


def test_a_later_epoch_supersedes_an_earlier_one(epochs: EpochStore) -> None:
    make_checkpoint(epochs, 1, last=7)
    epochs.check_not_superseded(1)
    make_checkpoint(epochs, 3)
    for claim in (EpochClaim(1), EpochClaim(2, EpochProgress(1, 7), discard_newer=True)):
        assert check_rejected(epochs, claim) == EpochProgress(3, -1)
    with pytest.raises(Fenced, match="epoch 3 has begun"):
        epochs.check_not_superseded(1)
    epochs.check_not_superseded(3)


def test_the_owner_of_an_earlier_epoch_is_fenced_before_its_next_batch(epochs: EpochStore) -> None:
    """Without ``besides`` (the protection) its lease alone does not detect the later epoch."""
    make_checkpoint(epochs, 1)
    with (
        lease_for(epochs.checkpoint(1).path, besides=lambda: epochs.check_not_superseded(1)) as lease,
    ):
        lease.check()
        make_folder(epochs.checkpoint(2).path)
        lease.check()
        make_checkpoint(epochs, 2)
        with pytest.raises(Fenced):
            lease.check()
    with lease_for(epochs.checkpoint(1).path) as unprotected:
        unprotected.check()


def test_a_planned_batch_counts_if_its_output_was_written(epochs: EpochStore) -> None:
    make_checkpoint(epochs, 1, last=7)
    make_checkpoint(epochs, 2, begun=0)
    queries: list[tuple[int, int]] = []

    def record_query(epoch: int, begun: int) -> int | None:
        queries.append((epoch, begun))
        return 0

    epochs.check_claim(EpochClaim(3, EpochProgress(1, 7)))
    with pytest.raises(NewerEpochExists, match="batch 0 of epoch 2 is committed"):
        epochs.check_claim(EpochClaim(3, EpochProgress(1, 7)), record_query)
    assert queries == [(2, 0)], "an epoch that ended between two batches needs no look-up"


def test_a_checkpoint_directly_in_the_root_counts(epochs: EpochStore) -> None:
    """A process without `--standby` writes its checkpoint there."""
    root = CheckpointRoot(epochs.root)
    root.initialise(SHOP)
    commit(root, 3)
    assert check_rejected(epochs, EpochClaim(1, allow_empty=True)) == EpochProgress(1, 3)
    epochs.check_claim(EpochClaim(2, EpochProgress(1, 3)))
    assert epochs.newest() == root
    assert epochs.newest() != make_checkpoint(epochs, 2)
    assert epochs.newest() == epochs.checkpoint(2)


def test_the_rest_of_a_crashed_start_is_no_checkpoint_and_is_cleared_for_the_next_start(epochs: EpochStore) -> None:
    root = epochs.checkpoint(2)
    with lease_for(root.path):
        make_folder(root.path / "initial")
        write_text(root.path / "initial" / "stage-0.parquet", "half")
        root.offsets.write_start(StreamOffsets(CutClock.at(1), {}))
        assert epochs.existing() == ()
        epochs.check_claim(EpochClaim(1, allow_empty=True))
        epochs.clear_partial(2)
        assert "lease.json" in list_names(root.path)
        assert all(name.startswith("lease.") for name in list_names(root.path))
        root.initialise(SHOP, epoch=2)
        with pytest.raises(ConfigError, match="it is in use"):
            epochs.clear_partial(2)
    assert epochs.existing() == (2,)


def test_a_checkpoint_without_its_identity_is_neither_recreated_nor_skipped(epochs: EpochStore) -> None:
    discard(make_checkpoint(epochs, 2, last=5).app_path)
    assert check_rejected(epochs, EpochClaim(2, EpochProgress(1, 9))) == EpochProgress(2, 5)
    with pytest.raises(ConfigError, match=r"app\.json is missing"):
        epochs.clear_partial(2)
    epochs.discard_partial(2)
    assert epochs.checkpoint(2).last_committed() == 5


def test_removing_all_checkpoints_keeps_other_files(epochs: EpochStore) -> None:
    make_checkpoint(epochs, 1, last=2)
    make_checkpoint(epochs, 10)
    CheckpointRoot(epochs.root).initialise(SHOP)
    write_text(epochs.root / "notes.txt", "somebody's")
    for root in epochs.all_roots():
        with lease_for(root.path):
            epochs.remove(root)
    assert epochs.remaining_names() == ("notes.txt",)
    discard(epochs.root / "notes.txt")
    assert epochs.remaining_names() == ()


def test_the_lease_of_a_removed_checkpoint_is_deleted_last(epochs: EpochStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no other process starts on a part of it."""
    root, removed = make_checkpoint(epochs, 1, last=2), list[str]()
    make_checkpoint(epochs, 2)
    real = remove_entry

    def remove(path: Location) -> None:
        removed.append(path.name)
        real(path)

    monkeypatch.setattr(module, "remove_entry", remove)
    with lease_for(root.path):
        epochs.remove(root)
    assert {"app.json", "offsets", "lease.json"} <= {*removed}
    assert [name.startswith("lease.") for name in removed] == sorted(name.startswith("lease.") for name in removed)
    assert epochs.existing() == (2,)


@given(
    there=st.dictionaries(st.integers(1, 5), st.integers(-1, 3), max_size=4),
    saved=st.none() | st.tuples(st.integers(1, 5), st.integers(0, 3)),
    epoch=st.integers(1, 6),
    begin=st.booleans(),
    accept=st.booleans(),
)
def test_no_claim_skips_a_committed_batch_without_permission(
    tmp_path_factory: pytest.TempPathFactory,
    there: dict[int, int],
    saved: tuple[int, int] | None,
    epoch: int,
    *,
    begin: bool,
    accept: bool,
) -> None:
    epochs = EpochStore(tmp_path_factory.mktemp("root"))
    for number, last in there.items():
        make_checkpoint(epochs, number, last=last)
    try:
        epochs.check_claim(EpochClaim(epoch, saved and EpochProgress(*saved), begin, accept))
    except ConfigError:
        return
    commits = [(number, last) for number, last in there.items() if last >= 0]
    assert epoch >= max(there, default=1)
    assert epoch in there or accept or all(saved is not None and one <= saved for one in commits)
    assert epoch in there or saved is not None or begin
