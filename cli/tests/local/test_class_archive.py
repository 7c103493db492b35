"""The archive of Spark's classes belongs to one Java and the jars of one Spark, and the cache keeps few of them.

That an archive can be built and used, all tests that start Spark show: they use one (``tests.harness.servers``).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.errors import SetupError
from headgate.local.class_archive import ClassArchive
from headgate.local.java import Java
from streamcore.spark.session import CLASS_ARCHIVE


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with an empty cache and no archive in use; ``use`` sets the variable, and the fixture restores it."""
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(CLASS_ARCHIVE, "")


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    return Java(home, home, 17, "17.0.15")


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a Spark of one jar."""
    folder = tmp_path / "spark" / "jars"
    folder.mkdir(parents=True)
    (folder / "a.jar").write_bytes(b"content")
    monkeypatch.setenv("SPARK_HOME", str(folder.parent))
    return folder


def _of(java: Java) -> ClassArchive:
    archive = ClassArchive.of(java)
    assert archive is not None
    return archive


def test_its_name_changes_with_java_and_with_each_jar(java: Java, jars: Path) -> None:
    first = _of(java)
    assert _of(java) == first
    other_java = _of(replace(java, build="17.0.16"))
    os.utime(jars / "a.jar", (1, 1))
    other_time = _of(java)
    (jars / "a.jar").write_bytes(b"longer content")
    os.utime(jars / "a.jar", (1, 1))
    other_size = _of(java)
    (jars / "b.jar").touch()
    one_more = _of(java)
    assert len({a.folder for a in (first, other_java, other_time, other_size, one_more)}) == 5


def test_there_is_none_for_a_java_without_shared_classes(java: Java) -> None:
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert ClassArchive.of(java) is None


def test_an_archive_that_the_environment_names_is_left_alone(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLASS_ARCHIVE, "/opt/classes.jsa")
    assert ClassArchive.of(java) is None


def test_it_is_used_once_it_is_built(java: Java) -> None:
    archive = _of(java)
    assert not archive.use()
    assert not os.environ[CLASS_ARCHIVE]
    archive.folder.mkdir(parents=True)
    assert archive.use()
    assert os.environ[CLASS_ARCHIVE] == str(archive.folder / "spark.jsa")


@pytest.mark.slow
def test_a_jvm_that_writes_none_is_an_error_and_leaves_none(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    archive = _of(java)
    with pytest.raises(SetupError, match="no Java in JAVA_HOME"):
        archive.build()
    assert not archive.exists


def test_the_cache_keeps_the_archives_that_were_used_last(java: Java) -> None:
    archive = _of(java)
    folders = [archive.folder.with_name(f"spark-{number}") for number in range(6)]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    others = [archive.folder.with_name(name) for name in ("kafka-1.jsa", "spark-7.part")]
    for other in others:
        other.mkdir()
    used = archive.folder.with_name("spark-8")
    used.mkdir()
    archive.folder.mkdir()
    archive.build()
    assert sorted(archive.folder.parent.iterdir()) == sorted([archive.folder, used, *folders[2:], *others])
