"""Takes out of an installed environment what a running service never loads: half of it, by size.

    python slim.py SITE_PACKAGES

Standard library only; it runs while the image is built. Promises: what is left is byte for byte what was installed,
but for jars that hold native libraries of several platforms, which lose the foreign ones. The image's own test is the
cluster's: a service that starts, computes, writes state and stops.
"""

from __future__ import annotations

import platform
import shutil
import sys
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

#: Of Spark: machine learning, graphs, Hive, YARN, the Connect server, the Scala shell. Streaming SQL needs none.
JARS = (
    *("spark-mllib*", "spark-graphx*", "spark-hive*", "spark-repl*", "spark-connect*", "spark-yarn*", "spark-ganglia*"),
    *("breeze*", "spire*", "cats-kernel*", "algebra*", "lapack*", "arpack*", "blas*", "JTransforms*", "JLargeArrays*"),
    *("hive-*", "derby*", "datanucleus*", "javax.jdo*", "jdo-api*", "HikariCP*", "libthrift*", "libfb303*", "bonecp*"),
    *("scala-compiler*", "jline*", "jna-*", "hadoop-yarn*", "curator-*", "zookeeper*", "pmml-*"),
    *("netty-*-osx-*", "netty-*-windows-*"),
)
#: Of Python: what a package brings to test, build or document itself, and what this engine asks of none.
FOLDERS = (
    *(
        "pip",
        "setuptools",
        "wheel",
        "_distutils_hack",
        "pyspark/pandas",
        "pyspark/ml",
        "pyspark/mllib",
        "pyspark/examples",
    ),
    *("pyspark/python/lib", "pyspark/data", "pyspark/licenses", "pyarrow/tests", "pyarrow/include", "numpy/*/tests"),
    *("numpy/tests", "pandas/tests", "kubernetes/aio", "kubernetes/e2e_test", "kubernetes/docs", "polars/testing"),
    "numba/tests",
)
FILES = ("pyarrow/libarrow_flight.so*", "pyarrow/_flight*.so", "pyarrow/*.pxd", "pyarrow/src")
#: In jars of native libraries, the names of those for this machine.
NATIVE = {
    "x86_64": ("linux64", "linux/amd64", "linux-x86_64", "Linux/x86_64"),
    "aarch64": ("linux-aarch64", "linux/aarch64", "aarch_64", "Linux/aarch64"),
}
LIBRARIES = ("*.so", "*.jnilib", "*.dll", "*.dylib", "*.a")


def remove(folder: Path, patterns: Iterable[str]) -> int:
    """Delete what matches; the bytes that went."""
    freed = 0
    for pattern in patterns:
        for path in [*folder.glob(pattern)]:
            freed += sum(f.stat().st_size for f in ([path] if path.is_file() else path.rglob("*")) if f.is_file())
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return freed


def is_foreign(name: str, machine: str) -> bool:
    """Is this entry of a jar a native library that this machine cannot load?"""
    if not any(fnmatch(name, pattern) for pattern in LIBRARIES):
        return False
    return "musl" in name or not any(mark in name for mark in NATIVE[machine])


def without_foreign(jar: Path, machine: str) -> int:
    """Write the jar anew without foreign libraries; the bytes that went. A jar that has none stays as it is."""
    before = jar.stat().st_size
    with zipfile.ZipFile(jar) as old:
        entries = old.infolist()
        kept = [entry for entry in entries if not is_foreign(entry.filename, machine)]
        if len(kept) == len(entries) or not any(fnmatch(e.filename, p) for e in kept for p in LIBRARIES):
            return 0
        part = jar.with_suffix(".part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as new:
            for entry in kept:
                new.writestr(entry, old.read(entry))
    part.replace(jar)
    return before - jar.stat().st_size


def main(packages: Path) -> None:
    """Slim the image, and print the bytes that this saves."""
    jars = packages / "pyspark" / "jars"
    freed = {
        "jars": remove(jars, JARS),
        "natives of other platforms": sum(
            without_foreign(jar, platform.machine()) for jar in sorted(jars.glob("*.jar"))
        ),
        "Python": remove(packages, (*FOLDERS, *FILES)),
    }
    for what, size in freed.items():
        print(f"slim: {what}: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
