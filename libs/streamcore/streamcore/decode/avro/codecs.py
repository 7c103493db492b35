"""Decompresses a block of an Avro container file, up to a limit of bytes.

The size that a block declares is not trusted: deflate stops at the limit, and the declared sizes of snappy and
zstandard are read before anything is allocated. A zstandard block is one frame with a window of at most 8 MiB, which
its format asks every decoder to support.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable

import pyarrow as pa

from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError

_CRC_BYTES = 4
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_WINDOW_BYTES = 8 << 20
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_BYTES = (0, 1, 2, 4)
_RLE = 1


#: What some writers, fastavro among them, leave of the checksum of zlib behind deflate data.
_CHECKSUM_BYTES = 4


def unpack(codec: str, block: bytes, max_bytes: int) -> bytes:
    """Return the content of a block; ``RecordError`` if the codec is unknown, or the block invalid or too large."""
    unpacker = _CODECS.get(codec)
    if unpacker is None:
        accepted = ", ".join(sorted(_CODECS))
        raise _invalid(f"codec {codec[:40]!a} is not known; accepted are {accepted}")
    content = unpacker(block, max_bytes)
    if len(content) > max_bytes:
        raise _too_large(max_bytes)
    return content


def _unpack_deflate(block: bytes, max_bytes: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=-15)
    try:
        content = unpacker.decompress(block, max_bytes + 1)
    except zlib.error:
        raise _invalid("the block is no deflate data") from None
    if not unpacker.eof and len(content) <= max_bytes:
        raise _invalid("the block's deflate data is cut off")
    if len(unpacker.unused_data) > _CHECKSUM_BYTES:
        raise _invalid("the block has bytes after its deflate data")
    return content


def _unpack_snappy(block: bytes, max_bytes: int) -> bytes:
    """Unpack raw snappy data, which is followed by the CRC-32 of the content, big-endian."""
    size, data = _snappy_size(block), block[:-_CRC_BYTES]
    if size > max_bytes:
        raise _too_large(max_bytes)
    try:
        content: bytes = pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    except (OSError, ValueError):
        raise _invalid("the block is no snappy data") from None
    if zlib.crc32(content).to_bytes(_CRC_BYTES, "big") != block[-_CRC_BYTES:]:
        raise _invalid("the block's checksum is wrong")
    return content


def _snappy_size(block: bytes) -> int:
    """Return the size that raw snappy data declares: a little-endian varint at its start."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise _invalid("the block is no snappy data")


def _unpack_zstandard(block: bytes, max_bytes: int) -> bytes:
    _check_frame(block)
    try:
        content: bytes = pa.CompressedInputStream(pa.py_buffer(block), "zstd").read(max_bytes + 1)
    except (OSError, ValueError):
        raise _invalid("the block is no zstandard data") from None
    return content


def _check_frame(block: bytes) -> None:
    """Check that the block is one complete frame of RFC 8878 with a window of at most 8 MiB."""
    stream = io.BytesIO(block)
    if _read(stream, 4) != _ZSTD_MAGIC:
        raise _invalid("the block is no zstandard data")
    descriptor = _read(stream, 1)[0]
    single_segment, checksum = bool(descriptor & 0x20), bool(descriptor & 0x04)
    window = 0 if single_segment else _window_bytes(_read(stream, 1)[0])
    _read(stream, _DICTIONARY_BYTES[descriptor & 3])
    size = int.from_bytes(_read(stream, max(_CONTENT_SIZE_BYTES[descriptor >> 6], int(single_segment))), "little")
    if max(window, size if single_segment else 0) > _MAX_WINDOW_BYTES:
        raise _invalid("the block's zstandard window is larger than 8 MiB")
    last = False
    while not last:
        header = int.from_bytes(_read(stream, 3), "little")
        last = bool(header & 1)
        _read(stream, 1 if (header >> 1) & 3 == _RLE else header >> 3)
    _read(stream, 4 if checksum else 0)
    if stream.read(1):
        raise _invalid("the block has bytes after its zstandard frame")


def _window_bytes(byte: int) -> int:
    """Return the window size that a window descriptor stands for (RFC 8878, 3.1.1.1.2)."""
    base = 1 << (10 + (byte >> 3))
    return base + base // 8 * (byte & 7)


def _read(stream: io.BytesIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise _invalid("the block's zstandard data is cut off")
    return data


def _unpack_null(block: bytes, _max_bytes: int) -> bytes:
    return block


def _invalid(reason: str) -> RecordError:
    return RecordError(RejectCode.NOT_AVRO, f"not an Avro container file: {reason}")


def _too_large(max_bytes: int) -> RecordError:
    return RecordError(RejectCode.TOO_LARGE, f"the block unpacks to more than {max_bytes} bytes, which is the limit")


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": _unpack_null,
    "deflate": _unpack_deflate,
    "snappy": _unpack_snappy,
    "zstandard": _unpack_zstandard,
}
