"""Schemas in the checkpoint: what the driver was told by the registry, kept for tasks and for replays.

Below the folder of one registry::

    ids/17           a schema, by its number or its GUID; written once
    absent/40        the ids that the registry did not have when batch 40 ran
    wanted/40-<hex>  the ids that a task of batch 40 waits for

The rule of a cut: an id in its ``absent`` file is absent, else an id in ``ids`` has that schema, else the task waits
until the driver has put it into one of both. ``ids`` only grows, so a replay finds what the first run found; and a
schema that was registered later stays absent for the cut that did not find it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from streamcore.errors import CorruptState
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaId, SchemaReference
from streamcore.storage import ObjectStore, checked_json
from streamcore.storage.atomic_files import parse_numbers

_IDS, _ABSENT, _WANTED = "ids", "absent", "wanted"
#: As many files ``absent`` are kept as the offset log keeps batches.
_KEEP = 100


@dataclass(frozen=True, slots=True)
class Request:
    """Ids that a task waits for. ``name``: of the file."""

    name: str
    batch: int
    ids: tuple[SchemaId, ...]


@dataclass(frozen=True, slots=True)
class SchemaStore:
    """The folder of one registry in a checkpoint. It can be pickled. Only the driver writes ``ids`` and ``absent``."""

    folder: ObjectStore

    @classmethod
    def of(cls, folder: ObjectStore, url: str) -> SchemaStore:
        """Return the store of the registry at this address: another registry gives the same ids to other schemas."""
        return cls(folder.under(hashlib.blake2b(url.encode(), digest_size=6).hexdigest()))

    def read(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with this id, or None. ``CorruptState`` if the file was changed."""
        name = f"{_IDS}/{schema_id}"
        content = self.folder.read(name)
        if content is None:
            return None
        document = checked_json.parse(content, f"{self.folder.url}/{name}")
        if document.get("id") != schema_id:
            raise CorruptState(f"{self.folder.url}/{name}: has schema {document.get('id')}; {checked_json.RESTORE}")
        references = tuple(SchemaReference(name, text) for name, text in document["references"])
        problem = document.get("problem", "")  # not in the stores of earlier versions
        return RegisteredSchema(schema_id, document["type"], document["schema"], references, problem)

    def add(self, schema: RegisteredSchema) -> None:
        """Write a schema."""
        references = [[reference.name, reference.text] for reference in schema.references]
        document = {"id": schema.id, "type": schema.type, "schema": schema.text, "references": references}
        document["problem"] = schema.problem
        self.folder.write(f"{_IDS}/{schema.id}", checked_json.encode(document))

    def absent(self, batch: int) -> frozenset[SchemaId]:
        """Return the ids that are absent in the batch. ``CorruptState`` if the file was changed."""
        name = f"{_ABSENT}/{batch}"
        content = self.folder.read(name)
        return frozenset() if content is None else frozenset(checked_json.parse(content, name)["ids"])

    def add_absent(self, batch: int, ids: Iterable[SchemaId]) -> None:
        """Add ids that the registry does not have while the batch runs; drop the files of old batches."""
        before = self.absent(batch)
        if (every := before | {*ids}) == before:
            return
        self.folder.write(f"{_ABSENT}/{batch}", checked_json.encode({"ids": sorted(every, key=str)}))
        if not before:
            folder = self.folder.under(_ABSENT)
            for old in parse_numbers(folder.files()):
                if old < batch - _KEEP:
                    folder.discard(str(old))

    def want(self, batch: int, ids: Collection[SchemaId]) -> None:
        """Ask the driver for schemas."""
        content = checked_json.encode({"ids": sorted(ids, key=str)})
        self.folder.write(f"{_WANTED}/{batch}-{hashlib.blake2b(content, digest_size=6).hexdigest()}", content)

    def requests(self) -> list[Request]:
        """Return the schemas that tasks wait for."""
        folder, found = self.folder.under(_WANTED), []
        for name in folder.files():
            if (content := folder.read(name)) is not None:
                ids = checked_json.parse(content, name)["ids"]
                found.append(Request(name, int(name.partition("-")[0]), tuple(ids)))
        return found

    def discard(self, request: Request) -> None:
        """Remove a request that is answered."""
        self.folder.discard(f"{_WANTED}/{request.name}")

    def discard_requests(self) -> None:
        """Remove the requests of tasks that have ended with their driver."""
        self.folder.under(_WANTED).remove()
