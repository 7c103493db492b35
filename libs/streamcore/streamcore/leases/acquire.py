"""One owner of a checkpoint at a time: in a folder by the kernel's lock, in a bucket by conditional writes."""

from __future__ import annotations

from collections.abc import Callable

from streamcore.leases.base import Lease, LeaseHeld
from streamcore.leases.file import FileLease
from streamcore.leases.object import ObjectLease
from streamcore.storage.location import Location, ObjectPath


def lease_for(
    root: Location,
    *,
    beat_ms: int = 5_000,
    stale_ms: int = 30_000,
    besides: Callable[[], None] = lambda: None,
) -> Lease:
    """Create the lease of a checkpoint root, without acquiring it. The parameters are those of ``Lease``."""
    if not isinstance(root, ObjectPath):
        return FileLease(root, beat_ms=beat_ms, stale_ms=stale_ms, besides=besides)
    from streamcore.storage.s3 import S3ObjectStore

    return ObjectLease(S3ObjectStore.parse(root.url), beat_ms=beat_ms, stale_ms=stale_ms, besides=besides)


__all__ = ["Lease", "LeaseHeld", "lease_for"]
