"""Fetches the pinned jars that Spark and the Kafka broker need, without Maven.

A lock file lists every jar, transitive ones too, as ``group:artifact:version sha256``, or with a classifier and an
extension, ``group:artifact:version:classifier:extension sha256``. Apache Ivy, which is one of
pyspark's own jars, downloads them from its default repository; it resolves no dependencies and does not read the
folders ``.m2`` and ``.ivy2`` of the user. Promises: a returned folder holds exactly the jars of the lock, byte for
byte; a wrong SHA-256 raises ``SetupError``, and no file is kept.
"""

from __future__ import annotations

import enum
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources, util
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

from headgate.console.messages import Print, to_stderr
from headgate.errors import SetupError
from headgate.local import cache
from headgate.local import java_trust_store as trust
from headgate.local.java import Java

_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={cache}/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" checksums=""/></resolvers>
</ivysettings>
"""
_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="headgate" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_PROGRESS_EVERY = 10  # downloads


class JarSet(enum.StrEnum):
    """A set of jars, with its own lock file. ``S3``: the jars of ``SPARK`` and the client of object stores. ``COPY``
    and ``DELTA``: Spark's own Kafka source and Delta sink, for benchmarks. ``KAFKA`` and ``OPENSEARCH``: a server.
    ``POSTGRES``: the programs of a server, one jar per platform. ``REGISTRY``: an archive with a server, for tests.
    ``ICEBERG``: a REST catalogue, for tests."""

    SPARK = "spark"
    S3 = "s3"
    COPY = "copy"
    KAFKA = "kafka"
    DELTA = "delta"
    POSTGRES = "postgres"
    OPENSEARCH = "opensearch"
    REGISTRY = "registry"
    ICEBERG = "iceberg"


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of a lock file. ``digest``: the SHA-256 in hexadecimal."""

    group: str
    artifact: str
    version: str
    digest: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def coordinates(self) -> str:
        """The text before the digest in the lock."""
        parts = (
            self.group,
            self.artifact,
            self.version,
            *((self.classifier, self.extension) if self.classifier else ()),
        )
        return ":".join(parts)

    @property
    def file_name(self) -> str:
        """The file name of the jar."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{classifier}.{self.extension}"


def lock_text(name: JarSet) -> str:
    """Return the content of the shipped lock file of a set."""
    return (resources.files("headgate.local") / "locks" / f"{name}.lock").read_text(encoding="utf-8")


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parse a lock file; empty lines and lines that begin with ``#`` are skipped. Raises ``SetupError`` for others."""
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.replace(":", " ").split():
            case [group, artifact, version, digest] if len(digest) == 64:
                jars.append(Jar(group, artifact, version, digest))
            case [group, artifact, version, classifier, extension, digest] if len(digest) == 64:
                jars.append(Jar(group, artifact, version, digest, classifier, extension))
            case _:
                raise SetupError(f"jar lock, line {number}: {line!r} is not 'group:artifact:version sha256'")
    return tuple(jars)


def folder(name: JarSet) -> Path:
    """Return the folder of the jars of a set; ``ensure`` fills it."""
    return cache.root() / "jars" / f"{name}-{sha256(lock_text(name).encode()).hexdigest()[:16]}"


def ensure(name: JarSet, java: Java, print_message: Print = to_stderr) -> Path:
    """Return the folder with the jars of a set; if it is missing, download and verify them first."""
    jars = parse_lock(lock_text(name))

    def build(part: Path) -> None:
        print_message(f"jars: fetching {len(jars)} for {name} (once)")
        fetch(jars, part, java, print_message)
        verify(jars, part)

    return cache.publish(folder(name), build, print_message)


def verify(jars: Iterable[Jar], directory: Path) -> None:
    """Raise ``SetupError`` unless the directory holds every jar with its digest."""
    for jar in jars:
        try:
            digest = sha256((directory / jar.file_name).read_bytes()).hexdigest()
        except FileNotFoundError:
            raise SetupError(f"jars: {jar.file_name} was not downloaded; try again") from None
        if digest != jar.digest:
            raise SetupError(
                f"jars: {jar.file_name} has SHA-256 {digest}, the lock has {jar.digest}; "
                "nothing was kept; find out who alters downloads here before you try again"
            )


def fetch(jars: Iterable[Jar], directory: Path, java: Java, print_message: Print = to_stderr) -> None:
    """Download the jars into ``directory`` without verifying them. Raises ``SetupError`` with Ivy's reason."""
    jar_list = tuple(jars)
    with TemporaryDirectory(prefix="headgate-ivy-") as temp:
        settings, module = Path(temp, "settings.xml"), Path(temp, "ivy.xml")
        settings.write_text(_SETTINGS.format(cache=quoteattr(str(Path(temp, "cache")))), encoding="utf-8")
        dependencies = "\n".join(_dependencies(jar_list))
        module.write_text(_MODULE.format(dependencies=dependencies), encoding="utf-8")
        pattern = f"{directory}/[artifact]-[revision](-[classifier]).[ext]"
        trusted = trust.system_certificates()
        options = trust.java_options(trusted, Path(temp)) if trusted else []
        command = [str(java.executable), *options, "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
        _run(
            [*command, "-settings", str(settings), "-ivy", str(module), "-retrieve", pattern],
            len(jar_list),
            print_message,
        )


def _dependencies(jars: Sequence[Jar]) -> Iterator[str]:
    """Yield one element for each module: of two elements of a module, Ivy takes one."""
    modules: dict[tuple[str, str, str], list[Jar]] = {}
    for jar in jars:
        modules.setdefault((jar.group, jar.artifact, jar.version), []).append(jar)
    for (group, artifact, version), files in modules.items():
        values = f"org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        named = "".join(map(_artifact, files)) if any(jar.classifier for jar in files) else ""
        yield f'    <dependency {values} conf="default->*" transitive="false">{named}</dependency>'


def _artifact(jar: Jar) -> str:
    kind = quoteattr(jar.extension)
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return f"<artifact name={quoteattr(jar.artifact)} type={kind} ext={kind}{classifier}/>"


def _run(command: list[str], total: int, print_message: Print) -> None:
    problems, fetched = [], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        assert ivy.stdout is not None
        for line in ivy.stdout:
            if "[SUCCESSFUL ]" in line:
                fetched += 1
                if fetched % _PROGRESS_EVERY == 0 and fetched < total:
                    print_message(f"jars: {fetched} of {total}")
            elif any(mark in line for mark in ("not found:", "Exception", "[FAILED")):
                problems.append(line.strip())
    if ivy.returncode != 0:
        reason = " | ".join(problems[:3]) or f"exit code {ivy.returncode}"
        raise SetupError(
            f"jars: {fetched} of {total} fetched, then: {reason}; is the network there, and its certificate authority "
            "known to this machine (Ivy calls both 'not found')? Then try again"
        )


def _ivy_jar() -> Path:
    spec = util.find_spec("pyspark")
    for package in (spec.submodule_search_locations or []) if spec else []:
        if ivy_jars := sorted(Path(package, "jars").glob("ivy-*.jar")):
            return ivy_jars[-1]
    raise SetupError("jars: pyspark is not installed here (its Ivy does the fetching); run `make setup`")
