"""Writes the digests of the jar locks anew, after a version in them was changed by hand.

Trust on first use: what the default repository delivers now is what every later fetch must deliver. A dependency
that a new version brings along has to be added as a line of its own (the broker's log names the missing class).
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from headgate.local import jars, java

_LOCKS = Path(__file__).parent.parent / "cli" / "headgate" / "local" / "locks"
_LINE = re.compile(r"^([^#\s]+(?::[^#\s]+){2,4})[ \t]+\S+$", re.MULTILINE)
_UNKNOWN = "0" * 64


def relock(path: Path) -> None:
    """Fetch what ``path`` names, and rewrite its digests."""
    text = path.read_text(encoding="utf-8")
    wanted = jars.parse_lock(_LINE.sub(rf"\1 {_UNKNOWN}", text))
    with TemporaryDirectory() as temp:
        jars.fetch(wanted, Path(temp), java.ensure())
        digests = {jar.coordinates: sha256(Path(temp, jar.file_name).read_bytes()).hexdigest() for jar in wanted}
    path.write_text(_LINE.sub(lambda line: f"{line[1]} {digests[line[1]]}", text), encoding="utf-8")
    print(f"{path.name}: {len(wanted)} jars")


if __name__ == "__main__":
    for name in jars.JarSet:
        relock(_LOCKS / f"{name}.lock")
