"""Reading of rule files, shared by the commands of ``headgate rules``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.rules.options import DEFAULT_APP

if TYPE_CHECKING:
    from headgate.rules.bundle import RuleBundle


def read(
    paths: Sequence[Path],
    streams: Path | None,
    lists: Path | None = None,
    samples: Mapping[str, Path] | None = None,
) -> RuleBundle:
    """Read the rules of these files and folders; without any, the shipped rules. ``samples``: see ``read_bundle``."""
    from headgate.rules.bundle import read_bundle, shipped_rules

    return read_bundle(paths or [shipped_rules(DEFAULT_APP)], streams, lists, samples=samples)
