"""The files of a checkpoint root, the app it belongs to, and whether it is whole.

::

    <root>/app.json      name, shards, key groups, output version, format: compared at each start; and the topics that
                         the app has written, also those of lanes that it no longer has
    <root>/epoch.json    see ``epoch``
    <root>/lease.*       see ``lease``
    <root>/offsets/N     the offset ranges of batch N: see ``offset_log``
    <root>/streams/N     the streams that were published while the app ran, from batch N on: see ``stream_log``
    <root>/initial/      the state of a savepoint, for batch 0: see ``streamcore.savepoint.restore``
    <root>/restored_from.json  the savepoint that it comes from, its batch and epoch; none where it began with nothing
    <root>/schemas/      the schemas that the app got from schema registries
    <root>/ended.json    the epoch of a checkpoint that was deleted when its app ended: the next epoch is a later one
    <root>/stages/       the state of the keyed stages before the last, by stage and shard: see ``state.cut_files``
    <root>/spark/        Spark's own: metadata, offsets/N (batch N planned), commits/N (batch N done), state/

A damaged checkpoint is rejected before Spark starts, because Spark could treat it as a new query or fail half-way, and
lose or repeat data silently. Nothing is repaired: an offsets file that looks deletable may be the plan of a batch whose
output is in Kafka already.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamcore.checkpoint.epoch import FIRST_EPOCH, create_epoch, read_epoch
from streamcore.checkpoint.offset_log import OffsetLog
from streamcore.checkpoint.stream_log import StreamLog
from streamcore.cuts.cut_id import CutId
from streamcore.errors import ConfigError, other_division
from streamcore.key_space import DEFAULT_KEY_GROUPS, KeySpace
from streamcore.storage.atomic_files import (
    Entry,
    discard,
    list_numbers,
    make_folder,
    read_document,
    read_int,
    read_json,
    read_whole,
    remove_entry,
    remove_folder,
    write_json,
)
from streamcore.storage.location import Location

FORMAT_VERSION = 6
#: What a checkpoint consists of, beside the lease, the commands and the status, in the order of its deletion.
FILES = ("app.json", "restored_from.json", "offsets", "streams", "schemas", "initial", "stages", "spark", "epoch.json")
_RESTORE = "restore from a savepoint, or start with a new checkpoint"
#: Why the keyed stages of an app may be others than those of its checkpoint.
STAGES_CHANGED = (
    "a step of the program with state, `deduplicate` of a stream, or the setting `feature_stage`, came or went"
)


@dataclass(frozen=True, slots=True)
class AppIdentity:
    """Properties of an app that may not change during a checkpoint's life.

    ``output_version``: increased when new code would write other records in a replay of a batch than the old code.
    """

    name: str
    shards: int
    output_version: int = 1
    key_groups: int = DEFAULT_KEY_GROUPS

    @classmethod
    def of(cls, name: str, keys: KeySpace) -> AppIdentity:
        """Return the identity of the app with this name and division of its keys."""
        return cls(name, keys.shards, key_groups=keys.key_groups)


@dataclass(frozen=True, slots=True)
class CheckpointRoot:
    """The files of one checkpoint. Nothing is kept in memory."""

    path: Location

    @property
    def spark(self) -> Location:
        """Spark's ``checkpointLocation``."""
        return self.path / "spark"

    @property
    def offsets(self) -> OffsetLog:
        """The log of the offsets that each batch reads."""
        return OffsetLog(self.path / "offsets")

    @property
    def streams(self) -> StreamLog:
        """The streams that were published while the app ran."""
        return StreamLog(self.path / "streams")

    @property
    def next_batch(self) -> int:
        """The first batch that Spark has not recorded as committed."""
        last = self.last_committed()
        return 0 if last is None else last + 1

    @property
    def initial(self) -> Location:
        """The folder with the state that batch 0 begins with. It does not exist if the app begins empty."""
        return self.path / "initial"

    @property
    def stages(self) -> Location:
        """The folder with the state of the keyed stages before the last."""
        return self.path / "stages"

    @property
    def schemas(self) -> Location:
        """The folder with the schemas that the app got from schema registries."""
        return self.path / "schemas"

    @property
    def restored_from_path(self) -> Location:
        """The file that names the savepoint that the checkpoint was restored from."""
        return self.path / "restored_from.json"

    @property
    def epoch_path(self) -> Location:
        """The file with the epoch."""
        return self.path / "epoch.json"

    @property
    def ended_path(self) -> Location:
        """The file that is left of a checkpoint that was deleted at the end of its app."""
        return self.path / "ended.json"

    @property
    def app_path(self) -> Location:
        """The file with the app's identity."""
        return self.path / "app.json"

    @property
    def is_used(self) -> bool:
        """Whether Spark has planned a batch in this checkpoint."""
        return bool(self.planned_batches())

    def initialise(self, identity: AppIdentity, *, epoch: int = FIRST_EPOCH) -> int:
        """Create a new root or check an existing one; return its epoch. The caller holds the lease.

        ``epoch`` applies to a new root only (a restore passes the savepoint's plus one). Raises ``ConfigError`` if the
        root belongs to another app or to other settings, or if Spark's files are damaged; raises ``CorruptState`` if
        another file is damaged.
        """
        make_folder(self.path)
        if (ended := read_json(self.ended_path)) is not None:
            self._delete_files()  # a crash may have left some
            epoch = self.create(identity, max(epoch, read_int(self.ended_path, ended, "epoch") + 1))
            discard(self.ended_path)
            return epoch
        known = self.identity()
        if known is None:
            self._check_new()
            return self.create(identity, epoch)
        self._check_identity(known, identity)
        self.verify()
        return read_epoch(self.epoch_path)

    def delete(self) -> None:
        """Delete the checkpoint of an app that has ended. The caller holds the lease, and nothing else uses it.

        The next app here begins anew, in a later epoch: the markers of this one stay in Kafka. After a crash on the way
        the next ``initialise`` deletes the rest.
        """
        write_json(self.ended_path, {"epoch": read_epoch(self.epoch_path)})
        self._delete_files()

    def _delete_files(self) -> None:
        for name in FILES:
            remove_entry(self.path / name)

    def _check_new(self) -> None:
        """Raise ``ConfigError`` if the root has files of a restore: with ``app.json`` lost, or the restore unfinished,
        the app would begin at other offsets."""
        if self.offsets.read_start() is not None or read_whole(self.restored_from_path) is not None:
            raise ConfigError(
                f"checkpoint {self.path}: app.json is missing though a savepoint was restored here; restore the "
                "savepoint again, to a new checkpoint"
            )

    def create(self, identity: AppIdentity, epoch: int) -> int:
        """Create the root of an app in ``epoch``, and return the epoch. Raise ``ConfigError`` if it has batches."""
        if self.is_used:
            raise ConfigError(
                f"checkpoint {self.path}: app.json is missing though batches exist; restore the file from a copy, "
                f"or {_RESTORE}"
            )
        # app.json comes last: while it is missing, the root counts as not yet created.
        create_epoch(self.epoch_path, epoch)
        entries: dict[str, Entry] = {"name": identity.name, "shards": identity.shards}
        entries["key_groups"] = identity.key_groups
        entries |= {"output_version": identity.output_version, "format_version": FORMAT_VERSION, "topics": ""}
        write_json(self.app_path, entries)
        return epoch

    def written_topics(self) -> list[str]:
        """Return the topics that the app has written in this checkpoint, or is about to write, sorted."""
        return str((read_json(self.app_path) or {}).get("topics", "")).split()

    def add_written_topics(self, topics: Iterable[str]) -> list[str]:
        """Add to the written topics and return all of them. Call it before the first record of a topic: a later
        process may have to end a transaction there, though the app has no such lane any more. The caller holds the
        lease, and the checkpoint exists."""
        known = self.written_topics()
        every = sorted({*known, *topics})
        if every != known:
            # A topic's name has no space (Kafka allows letters, digits, '.', '_' and '-').
            write_json(self.app_path, {**(read_json(self.app_path) or {}), "topics": " ".join(every)})
        return every

    def adopt_epoch(self, epoch: int) -> int:
        """Return ``epoch`` if the owner may run the root in it. Raise ``ConfigError`` if the root is in another epoch:
        in a lower one the owner would be fenced, and in a higher one it would write batches again."""
        if self.identity() is None:
            return epoch
        found = read_epoch(self.epoch_path)
        if found != epoch:
            raise ConfigError(
                f"checkpoint {self.path}: is in epoch {found}, and is to be run in epoch {epoch}; only a restore from "
                "a savepoint begins another epoch, with a checkpoint of its own"
            )
        return epoch

    def identity(self) -> AppIdentity | None:
        """Return the app that this root belongs to, or None for a new root."""
        entries = read_json(self.app_path)
        if entries is None:
            return None
        version = read_int(self.app_path, entries, "format_version")
        if version != FORMAT_VERSION:
            raise ConfigError(
                f"checkpoint {self.path}: format {version}, this program reads {FORMAT_VERSION}; use the program that "
                "wrote it to take a savepoint, and restore that with this one"
            )
        numbers = (read_int(self.app_path, entries, n) for n in ("shards", "output_version", "key_groups"))
        return AppIdentity(str(entries.get("name", "")), *numbers)

    def _check_identity(self, known: AppIdentity, asked: AppIdentity) -> None:
        if known.name != asked.name:
            raise ConfigError(
                f"checkpoint {self.path}: belongs to app {known.name}, not {asked.name}; "
                f"give {asked.name} a checkpoint of its own"
            )
        for name, old, new in (
            ("shards", known.shards, asked.shards),
            ("key groups", known.key_groups, asked.key_groups),
        ):
            if old != new:
                raise ConfigError(f"checkpoint {self.path}: {other_division(name, old, new)}")
        old, new = known.output_version, asked.output_version
        if old != new:
            raise ConfigError(
                f"checkpoint {self.path}: output version {old}, the app is set to {new}; set it back to {old}, or take "
                f"a savepoint with {old} and restore it with {new}"
            )

    def planned_batches(self) -> tuple[int, ...]:
        """Batches in Spark's offset log, ascending."""
        return list_numbers(self.spark / "offsets")

    def committed_batches(self) -> tuple[int, ...]:
        """Batches in Spark's commit log, ascending."""
        return list_numbers(self.spark / "commits")

    def last_planned(self) -> int | None:
        """Return the last batch whose inputs are fixed, or None."""
        return max(self.planned_batches(), default=None)

    def last_committed(self) -> int | None:
        """Return the last batch that Spark recorded as committed, or None. The next batch may be in Kafka already."""
        return max(self.committed_batches(), default=None)

    def check_history(self, written: CutId, epoch: int) -> None:
        """Raise ``ConfigError`` unless this checkpoint planned ``written``, a cut whose output was written in its
        epoch.

        Otherwise another copy of the checkpoint wrote it, or this folder is an old copy: its next batches would be
        skipped as already written. A cut that is older than the offset log is not checked.
        """
        planned = self.offsets.batches()
        if not planned or written.batch > planned[-1]:
            if written.batch == self.last_planned():
                self._raise_damaged(f"offsets/{written.batch} is missing", f"{written} was written")
            here = f"here the next one is {planned[-1] + 1 if planned else 0}"
        elif (bounds := self.offsets.read(written.batch)) is None or bounds.id(written.batch) == written:
            return
        else:
            here = "here that batch has other offsets"
        raise ConfigError(
            f"checkpoint {self.path}: {written} of epoch {epoch} was written, and {here}: what was written came from "
            "another copy of this checkpoint, or from this one before it was set back. Use that one, or give the app "
            "another name"
        )

    def check_marker(self, written: CutId | None, epoch: int, every: int) -> None:
        """Raise ``ConfigError`` if the markers topic has lost the marker, which is at most ``every`` batches old."""
        last, oldest = self.last_committed(), -1 if written is None else written.batch
        if last is not None and last - oldest > every:
            raise ConfigError(
                f"checkpoint {self.path}: batch {last} of epoch {epoch} is committed, and the markers topic shows "
                f"{written or 'no batch of this app'}: its records were deleted, or this is another Kafka cluster. Use "
                "the cluster and the markers topic that the app wrote to, or restore the app from a savepoint"
            )

    def check_stages(self, count: int) -> None:
        """Raise ``ConfigError`` unless the committed batches were written by an app with so many keyed stages. Spark
        knows the last one alone, and would begin it anew."""
        if self.last_committed() is None:
            return
        found = list_numbers(self.stages)
        lost = sorted({*range(max(found, default=-1))} - {*found})
        if lost:
            self._raise_damaged(f"stages/{lost[0]} is missing", "each keyed stage before the last has its folder there")
        written = len(found) + 1
        if written != count:
            last_lost = f", or the folder stages/{written - 1} was lost" if written < count else ""
            raise ConfigError(
                f"checkpoint {self.path}: it was written with other keyed stages ({written}, the app has {count}): "
                f"{STAGES_CHANGED}, or another version wrote it{last_lost}; restore the app from a savepoint, or take "
                "the change back"
            )

    def remove_other_stages(self, count: int) -> None:
        """Remove the folders of stages that attempts of an app with more than ``count`` stages have left before the
        first commit. The caller holds the lease, has made all checks, and runs no batch."""
        for stage in list_numbers(self.stages):
            if stage >= count - 1:
                remove_folder(self.stages / str(stage))

    def verify(self) -> None:
        """Raise ``ConfigError`` when Spark must not start on this folder, with the file and the next step."""
        planned, committed = self.planned_batches(), self.committed_batches()
        self._check_restored(planned)
        if not planned:
            if committed:
                self._raise_damaged("spark/commits has batches, spark/offsets has none", "the offset log was deleted")
            if (decided := self.offsets.batches()) and decided[-1] > 0:
                self._raise_damaged(
                    "spark/offsets has no batch", f"offsets has batch {decided[-1]}, so the app would begin anew"
                )
            return
        if not read_whole(self.spark / "metadata"):
            self._raise_damaged("spark/metadata is missing or empty", "Spark would take this for a new query")
        for name, batches in (("offsets", planned), ("commits", committed)):
            if (gap := _gap(batches)) is not None:
                self._raise_damaged(
                    f"spark/{name}/{gap} is missing between {batches[0]} and {batches[-1]}", "a log has a hole"
                )
        if committed and not planned[0] <= committed[-1] <= planned[-1]:
            self._raise_damaged(
                f"spark/offsets/{committed[-1]} is missing",
                f"batch {committed[-1]} is committed, the last planned is {planned[-1]}",
            )
        if planned[-1] - (committed[-1] if committed else planned[0] - 1) > 1:
            self._raise_damaged(
                f"spark/commits/{committed[-1] + 1 if committed else planned[0]} is missing",
                f"the batches up to {planned[-1]} are planned, and only the last may be without a commit",
            )
        self._check_contents(planned, committed)
        decided = self.offsets.batches()
        if committed and committed[-1] not in decided:
            self._raise_damaged(f"offsets/{committed[-1]} is missing", f"batch {committed[-1]} is committed")
        if decided and decided[-1] > planned[-1]:
            self._raise_damaged(
                f"spark/offsets/{decided[-1]} is missing",
                f"offsets has batch {decided[-1]}, the last planned is {planned[-1]}",
            )
        for batch in decided[-2:]:
            self.offsets.check_link(batch)

    def _check_restored(self, planned: Sequence[int]) -> None:
        """Check that the origin of a restored checkpoint and, before its first batch, its offsets are there."""
        if 0 in planned or not planned:
            origin, start = read_document(self.restored_from_path), self.offsets.read_start()
            if (origin is None) != (start is None):
                lost = "offsets/begin" if start is None else self.restored_from_path.name
                self._raise_damaged(f"{lost} is missing", "a savepoint was restored here")

    def _check_contents(self, planned: Sequence[int], committed: Sequence[int]) -> None:
        """Check the files that a start reads: the last two of each log, whose first line is the log's version."""
        files = [self.spark / "offsets" / str(b) for b in planned[-2:]]
        files += [self.spark / "commits" / str(b) for b in committed[-2:]]
        for file in files:
            lines = (read_whole(file) or b"").splitlines()
            if len(lines) < 2 or not lines[0].startswith(b"v") or not lines[0][1:].isdigit():
                what = f"spark/{file.parent.name}/{file.name} is cut short"
                self._raise_damaged(what, "the disk was full or the machine lost power while it was written")

    def _raise_damaged(self, what: str, why: str) -> None:
        raise ConfigError(f"checkpoint {self.path}: {what} ({why}); {_RESTORE}. Nothing was changed.")


def _gap(batches: Sequence[int]) -> int | None:
    """Return the first id that is missing, or None."""
    return next((a + 1 for a, b in itertools.pairwise(batches) if b != a + 1), None)
