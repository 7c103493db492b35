"""Identities of cuts, for tests that write without an offset log."""

from __future__ import annotations

from streamcore.cuts.cut_id import CutId
from streamcore.storage.checked_json import DIGEST_DIGITS


def cut_id(batch: int, history: int = 0) -> CutId:
    """Return the identity of a batch. Two histories of an app have other digests for one batch."""
    return CutId(batch, f"{16 * batch + history + 1:0{DIGEST_DIGITS}x}")
