"""Encodes frames as bytes: one frame as an Arrow IPC stream, several named frames as one blob.

Int64 columns are stored in the narrowest integer type that fits their values, because counts and sums are mostly small,
and are read back as Int64.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping

import polars as pl

_AS_INT64 = pl.col(pl.Int8, pl.Int16, pl.Int32).cast(pl.Int64)


def to_bytes(frame: pl.DataFrame) -> bytes:
    """Encode one frame."""
    buffer = io.BytesIO()
    narrow = pl.DataFrame([c.shrink_dtype() if c.dtype == pl.Int64 else c for c in frame.get_columns()])
    narrow.write_ipc_stream(buffer, compat_level=pl.CompatLevel.oldest())
    return buffer.getvalue()


def from_bytes(blob: bytes | memoryview) -> pl.DataFrame:
    """Decode the frame that ``to_bytes`` encoded."""
    return pl.read_ipc_stream(io.BytesIO(blob)).with_columns(_AS_INT64)


def pack(frames: Mapping[str, pl.DataFrame]) -> bytes:
    """Encode frames by name, in the order of their names: count, then name and Arrow IPC stream, each with its
    length."""
    parts = [struct.pack("<I", len(frames))]
    for name in sorted(frames):
        for part in (name.encode(), to_bytes(frames[name])):
            parts += [struct.pack("<Q", len(part)), part]
    return b"".join(parts)


def unpack(blob: bytes, prefix: str = "") -> dict[str, pl.DataFrame]:
    """Decode the frames that ``pack`` encoded, those whose name begins with ``prefix``."""
    (count,) = struct.unpack_from("<I", blob)
    parts = list(_parts(memoryview(blob)[4:], 2 * count))
    pairs: Iterable[tuple[memoryview, memoryview]] = zip(parts[::2], parts[1::2], strict=True)
    named = ((bytes(name).decode(), body) for name, body in pairs)
    return {name: from_bytes(body) for name, body in named if name.startswith(prefix)}


def _parts(view: memoryview, count: int) -> Iterable[memoryview]:
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", view)
        yield view[8 : 8 + size]
        view = view[8 + size :]
