"""One owner of a checkpoint at a time: in a folder by the kernel's lock, in a bucket by conditional writes."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from streamcore.checkpoint.file_lease import FileLease
from streamcore.checkpoint.object_lease import ObjectLease
from streamcore.checkpoint.owner import Owner
from streamcore.location import Location, ObjectPath


class Lease(Protocol):
    """The lease of one checkpoint root. ``acquire``, ``check`` before each batch, ``release``."""

    @property
    def owner(self) -> Owner:
        """Ourselves."""
        ...

    def acquire(self, meanwhile: Callable[[], None] = ...) -> None:
        """Become the owner; ``ConfigError`` names the other one.

        When the last owner did not release and nothing here can know that it is gone, this watches for up to
        ``stale_ms`` whether it still lives; ``meanwhile`` is called before, for what can be begun in that time.
        """
        ...

    def check(self) -> None:
        """Call before each batch. ``Fenced`` when the checkpoint is not, or no longer, ours."""
        ...

    def release(self) -> None:
        """Give it back, so that the next owner need not wait. Leaves another owner's record alone."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None, /
    ) -> None: ...


def lease_on(
    root: Location,
    *,
    beat_ms: int = 5_000,
    stale_ms: int = 30_000,
    besides: Callable[[], None] = lambda: None,
) -> Lease:
    """The lease of a root, not taken yet. ``besides``: what else ``check`` checks; it raises ``Fenced``.

    ``beat_ms``: between two heartbeats; ``stale_ms``: how long an owner stands
    still before it is taken for dead. ``ConfigError`` when the one is not more than twice the other."""
    if not isinstance(root, ObjectPath):
        return FileLease(root, beat_ms=beat_ms, stale_ms=stale_ms, besides=besides)
    from streamcore.storage.s3 import S3Folder

    return ObjectLease(S3Folder.parse(root.url), beat_ms=beat_ms, stale_ms=stale_ms, besides=besides)
