"""Finds damaged and missing files of Spark in a checkpoint, after a query failed to read them.

Spark's own error often names neither the file nor the shard. On a disk, Hadoop keeps a file of checksums beside each of
Spark's files; and the last commit names the state file of every partition. In a bucket there are no such checksums, so
only missing files are found there.

::

    spark/state/<operator>/<partition>/<version>_<id>.changelog   what one batch changed; version is batch + 1
    spark/state/<operator>/<partition>/<version>_<id>.zip         a snapshot: its list of files in SSTs/
    spark/state/<operator>/<partition>/<name>.crc                 Spark's checksum of <name>
    spark/<folder>/.<name>.crc                                    Hadoop's checksums of <name>
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from streamcore.storage.atomic_files import list_names, list_numbers, read_whole
from streamcore.storage.location import Location

#: A snapshot, or Spark's checksum of one: a checksum shows that a snapshot was there.
_SNAPSHOT = re.compile(r"((\d+)_.*\.zip)(\.crc)?\Z")
#: The end of the path of a file with the schema of the state.
_SCHEMA = re.compile(r"/_stateSchema/default/([^/]+)\Z")
#: Entries for each state store of an operator.
_STORE = frozenset({"storeName", "numColsPrefixKey", "numPartitions", "stateSchemaFilePaths"})
#: Properties of an operator with state of its own.
_PROPERTIES = frozenset({"timeMode", "outputMode", "stateVariables"})
#: Start of Hadoop's file of checksums: its name and the number of bytes of each checksum. A CRC-32 of each follows.
_CHECKSUMS = struct.Struct(">4sI")


#: Ids of the state files that the commits name, by operator, partition and version.
_Ids = dict[tuple[str, str, int], str]


def find_log_damage(spark: Location) -> list[str]:
    """Return a line for each file of Spark's logs and operators that the next batch needs and that is damaged.

    ``spark``: Spark's folder in the checkpoint. Lines begin with the file's path in it. All files are small.
    """
    return list(_find_log_damage(spark))


def find_state_damage(spark: Location) -> list[str]:
    """Return a line, as ``find_log_damage`` does, for each state file that is damaged or missing. Reads all of the
    state."""
    return list(_find_state_damage(spark / "state", _committed_ids(spark / "commits")))


def _find_log_damage(spark: Location) -> Iterator[str]:
    if not list_numbers(spark / "offsets"):
        return
    yield from _check_document(spark, "metadata", "metadata")
    for log in ("offsets", "commits"):
        for batch in list_numbers(spark / log)[-2:]:
            yield from _check_document(spark / log, str(batch), f"{log}/{batch}")
    begun = bool(list_numbers(spark / "commits"))
    for operator in (f"state/{number}" for number in list_numbers(spark / "state")):
        yield from _check_operator(spark, operator, begun=begun)


def _check_operator(spark: Location, operator: str, *, begun: bool) -> Iterator[str]:
    """Check what the operator's first batch wrote about itself. ``begun``: a batch is committed."""
    descriptions = list_numbers(spark / operator / "_metadata/v2")
    if begun and not descriptions:
        yield f"{operator}/_metadata/v2/0 is missing"
    for batch in descriptions:
        name = f"{operator}/_metadata/v2/{batch}"
        damage = list(_check_document(spark / operator / "_metadata/v2", str(batch), name))
        yield from damage
        paths = None if damage else _schema_paths(read_whole(spark / name) or b"")
        if not damage and paths is None:
            yield f"{name} is changed"
        for path in paths or ():
            yield from _check_schema(spark, operator, name, path)


def _check_schema(spark: Location, operator: str, name: str, path: str) -> Iterator[str]:
    """Check the file with the schema of the state that the description ``name`` of an operator names."""
    schema, folder = _SCHEMA.search(path), f"{operator}/_stateSchema/default"
    damage = [] if schema is None else list(_check_file(spark / folder, schema[1], f"{folder}/{schema[1]}"))
    yield from damage
    on_disk = path.removeprefix("file:")
    if not damage and on_disk != path and not Path(on_disk).exists():
        yield f"{name} names {on_disk}, which is missing"


def _schema_paths(content: bytes) -> list[str] | None:
    """Return the paths of the schemas that a description names; None if it lacks entries that Spark reads at a start.
    Of one without them Spark says only that a key or an element of an array is not there."""
    try:
        document = json.loads(content.partition(b"\n")[2])
        properties = json.loads(document.get("operatorPropertiesJson") or "{}")
        stores = document.get("stateStoreInfo")
        if not stores or not all(store.keys() >= _STORE for store in stores):
            return None
        if properties and not properties.keys() >= _PROPERTIES:
            return None
        return [str(path) for store in stores for path in store["stateSchemaFilePaths"]]
    except (ValueError, AttributeError, TypeError):
        return None


def _committed_ids(commits: Location) -> _Ids:
    """Return the ids in the commits that can be read. A commit of another format has none."""
    ids: _Ids = {}
    for batch in list_numbers(commits):
        with suppress(ValueError):
            document = json.loads((read_whole(commits / str(batch)) or b"").partition(b"\n")[2])
            for operator, partitions in (document.get("stateUniqueIds") or {}).items():
                ids |= {(operator, str(n), batch + 1): stores[0] for n, stores in enumerate(partitions) if stores}
    return ids


def _find_state_damage(state: Location, ids: _Ids) -> Iterator[str]:
    """Check the state of every partition of every operator."""
    for operator in (str(number) for number in list_numbers(state)):
        for partition in (str(number) for number in list_numbers(state / operator)):
            versions = {v: i for (o, p, v), i in ids.items() if (o, p) == (operator, partition)}
            name = f"state/{operator}/{partition}"
            yield from _find_partition_damage(state / operator / partition, name, versions)


def _find_partition_damage(folder: Location, name: str, ids: Mapping[int, str]) -> Iterator[str]:
    """Check the newest snapshot of a partition, and the change logs after it. ``ids``: by version."""
    files = list_names(folder)
    snapshots = {int(m[2]): m[1] for m in map(_SNAPSHOT.match, files) if m is not None}
    committed = {version: file for version, file in snapshots.items() if ids.get(version, file) in file}
    newest = max(committed, default=0)
    if newest:
        yield from _check_snapshot(folder, name, committed[newest])
    for version in range(newest + 1, max(ids, default=0) + 1):
        if version in ids:
            log = f"{version}_{ids[version]}.changelog"
            yield from _check_file(folder, log, f"{name}/{log}")
        elif not any(file.startswith(f"{version}_") and file.endswith(".changelog") for file in files):
            yield f"{name}/{version}_*.changelog is missing"


def _check_snapshot(folder: Location, name: str, snapshot: str) -> Iterator[str]:
    """Check a snapshot, and the sorted files that it names."""
    damage = list(_check_file(folder, snapshot, f"{name}/{snapshot}"))
    if damage:
        yield from damage
        return
    try:
        sorted_files = _sorted_files(read_whole(folder / snapshot) or b"")
    except (zipfile.BadZipFile, zlib.error, LookupError, ValueError):
        yield f"{name}/{snapshot} is cut short or changed"
        return
    tables = list_names(folder / "SSTs")
    for table, size in sorted_files:
        where = f"{name}/SSTs/{table}"
        if table not in tables:
            yield f"{where} is missing"
        elif len(read_whole(folder / "SSTs" / table) or b"") != size:
            yield f"{where} does not have its {size} bytes"
        else:
            yield from _check_file(folder / "SSTs", table, where)


def _sorted_files(snapshot: bytes) -> list[tuple[str, int]]:
    """Return name and size of the sorted files of a snapshot. Raise an error of ``zipfile``, ``LookupError`` or
    ``ValueError`` if the snapshot is damaged."""
    with zipfile.ZipFile(io.BytesIO(snapshot)) as parts:
        if (damaged := parts.testzip()) is not None:
            raise zipfile.BadZipFile(damaged)
        metadata = json.loads(parts.read("metadata").partition(b"\n")[2])
    return [(file["dfsSstFileName"], file["sizeBytes"]) for file in metadata["sstFiles"]]


def _check_document(folder: Location, file: str, name: str) -> Iterator[str]:
    """Check a file of which each line is a version, or a JSON document, or a ``-`` for none."""
    damage = list(_check_file(folder, file, name))
    yield from damage
    lines = [] if damage else (read_whole(folder / file) or b"").splitlines()
    if not damage and not (lines and all(map(_is_document, lines))):
        yield f"{name} is cut short or changed"


def _is_document(line: bytes) -> bool:
    if line == b"-" or (line[:1] == b"v" and line[1:].isdigit()):
        return True
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _check_file(folder: Location, file: str, name: str) -> Iterator[str]:
    """Compare a file, and Spark's checksum of it, with Hadoop's checksums of both, if they are there."""
    if read_whole(folder / file) is None:
        yield f"{name} is missing"
    for each in (file, f"{file}.crc"):
        content, checksums = read_whole(folder / each), read_whole(folder / f".{each}.crc")
        if content is not None and checksums is not None and not _matches(content, checksums):
            where = PurePosixPath(name).parent
            yield f"{where / each} does not match its checksum in {where}/.{each}.crc"


def _matches(content: bytes, checksums: bytes) -> bool:
    """Return whether the content has these checksums of Hadoop."""
    if len(checksums) < _CHECKSUMS.size:
        return False
    magic, chunk = _CHECKSUMS.unpack_from(checksums)
    if magic != b"crc\0" or chunk == 0:
        return False
    wanted = b"".join(
        zlib.crc32(content[start : start + chunk]).to_bytes(4, "big") for start in range(0, len(content), chunk)
    )
    return checksums[_CHECKSUMS.size :] == wanted
