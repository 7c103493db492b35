"""State that a shard is given before its first cut: parts of tables, waiting among its blobs to be taken in.

A restore puts them there by whatever way the engine has, as they are in the savepoint and for whatever program comes.
The shard takes them in with its own tables, which bring older versions up, and writes its log anew. Until the cut that
does so is committed they stay, so a crash repeats it.

====================  =====================================================================================
blob                  content
====================  =====================================================================================
``staged``            how many parts there are, and the shard's own cells, as JSON; there is none without it
``staged/<n>``        rows of one table by its name (``packed.pack``), to be taken in the order of n
====================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson
import polars as pl

from streamcore.errors import CorruptState
from streamcore.state.blobs import BlobStore
from streamcore.state.packed import unpack
from streamcore.state.table import StateTable

_STAGED = "staged"


def stage(parts: Iterable[bytes], cells: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
    """The blobs of one shard, by name. ``parts``: as ``packed.pack`` makes them."""
    count = 0
    for part in parts:
        yield f"{_STAGED}/{count}", part
        count += 1
    yield _STAGED, orjson.dumps({"parts": count, "cells": cells})


def take(blobs: BlobStore, table: Callable[[str], StateTable]) -> Mapping[str, Any] | None:
    """Load what is staged into empty tables, and remove it. Returns the cells; None where nothing is staged.

    ``CorruptState`` if a part is missing, and whatever a table raises that cannot read its rows.
    """
    head = blobs.get(_STAGED)
    if head is None:
        return None
    document = orjson.loads(head)
    for number in range(document["parts"]):
        for name, rows in _read(blobs, number).items():
            table(name).load(rows)
        blobs.remove(f"{_STAGED}/{number}")
    blobs.remove(_STAGED)
    cells: Mapping[str, Any] = document["cells"]
    return cells


def _read(blobs: BlobStore, number: int) -> Mapping[str, pl.DataFrame]:
    blob = blobs.get(f"{_STAGED}/{number}")
    if blob is None:
        raise CorruptState(f"restored state: part {number} is missing; restore the savepoint again")
    return unpack(blob)
