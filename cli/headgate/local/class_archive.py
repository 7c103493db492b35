"""The archive of the classes that Spark's JVM loads, in the user's cache: with it a start of Spark takes about half.

It takes half a minute to build, so ``headgate up`` builds it in the background, for the next start. An archive belongs
to one Java and one class path. A JVM ignores an archive that does not fit.

Promises: the name of an archive changes with the Java and with path, size and time of each jar, so an archive that
would be ignored is not used; of archives that were not used for a day, about 170 MB each, the cache holds at most
``_KEPT``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from headgate.console.messages import Print, silent
from headgate.errors import SetupError
from headgate.local import cache
from headgate.local.java import Java
from streamcore.spark.session import CLASS_ARCHIVE, class_path

_LIMIT_S = 600.0
_KEPT = 4
_UNUSED_S = 86_400
_NICENESS = 19
_FILE = "spark.jsa"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for a Java and the jars of Spark. ``folder``: where it is, once built."""

    folder: Path

    @classmethod
    def of(cls, java: Java) -> ClassArchive | None:
        """Return the archive; None if this Java cannot have one, or the environment names another archive."""
        if not java.shares_classes or os.environ.get(CLASS_ARCHIVE):
            return None
        identity = "\n".join([str(java.home), java.build, *_describe(class_path(None))])
        return cls(cache.root() / "classes" / f"spark-{sha256(identity.encode()).hexdigest()[:16]}")

    @property
    def exists(self) -> bool:
        """Whether the archive is built."""
        return self.folder.is_dir()

    def use(self) -> bool:
        """Have all children of this process use the archive. Return False if it is not built yet."""
        if not self.exists:
            return False
        os.utime(self.folder)
        os.environ[CLASS_ARCHIVE] = str(self.folder / _FILE)
        return True

    def build(self, print_message: Print = silent) -> None:
        """Build the archive unless it is there; the process must have its Java activated. Raises ``SetupError``."""

        def write(part: Path) -> None:
            command = [sys.executable, "-m", "streamcore.spark.class_archive", str(part / _FILE)]
            completed = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
            if not (part / _FILE).exists():
                raise SetupError(f"class archive: Spark's JVM wrote none: {completed.stderr[-2000:]}")

        cache.publish(self.folder, write, print_message)
        self._remove_old()

    def build_in_background(self) -> None:
        """Start a process that builds the archive with the lowest priority, and outlives this process."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / "build.log").open("wb") as log:
            subprocess.Popen(
                [sys.executable, "-m", "headgate.local.class_archive", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _remove_old(self) -> None:
        """Remove the archives that were not used for the longest time. A JVM that uses one keeps it mapped."""
        used_s = {f: f.stat().st_mtime for f in self.folder.parent.glob("spark-*") if f.suffix != ".part"}
        unused = [folder for folder, at in used_s.items() if at < time.time() - _UNUSED_S]
        for folder in sorted(unused, key=lambda folder: used_s[folder], reverse=True)[_KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)


def _describe(class_path: list[str]) -> Iterator[str]:
    """Yield path, size and time of each jar, which a JVM compares before it uses an archive."""
    for jar in class_path:
        status = Path(jar).stat()
        yield f"{jar} {status.st_size} {status.st_mtime_ns}"


def main() -> None:
    """Build an archive with the lowest priority. The argument: the folder of the archive."""
    os.nice(_NICENESS)
    ClassArchive(Path(sys.argv[1])).build()


if __name__ == "__main__":
    main()
