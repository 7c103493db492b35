"""The cache, the locks and the Java runtime. Every test with a broker covers the real downloads."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from headgate.console.messages import silent
from headgate.errors import SetupError
from headgate.local import cache, jars, java
from headgate.local import java_trust_store as trust
from headgate.local.java import Java


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build_slowly(target: Path, log: Path) -> None:
    def build(part: Path) -> None:
        with log.open("a") as notes:
            notes.write("built\n")
        (part / "content").write_text("all of it")

    cache.publish(target, build, silent)
    assert (target / "content").read_text() == "all of it"


@pytest.mark.slow
def test_concurrent_processes_build_the_same_entry_once(own_cache: Path, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    jobs = [
        spawn.Process(target=build_slowly, args=(own_cache / "thing", tmp_path / "log")) for _ in range(4)
    ]  # fmt: skip
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 4
    assert (tmp_path / "log").read_text() == "built\n"


def test_a_failed_build_leaves_no_files_and_can_be_repeated(own_cache: Path) -> None:
    def fail(part: Path) -> None:
        (part / "half").touch()
        raise SetupError("network went away")

    with pytest.raises(SetupError, match="went away"):
        cache.publish(own_cache / "thing", fail)
    assert not (own_cache / "thing").exists()
    whole = cache.publish(own_cache / "thing", lambda part: (part / "whole").touch())
    assert [p.name for p in whole.iterdir()] == ["whole"]


def test_the_error_about_a_read_only_cache_names_the_variable_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SetupError, match="HEADGATE_CACHE"):
        cache.publish(tmp_path / "thing", lambda _: None)


@pytest.mark.parametrize("name", list(jars.JarSet))
def test_the_shipped_locks_name_every_jar_once_with_a_digest_and_no_host(name: jars.JarSet) -> None:
    text = jars.lock_text(name)
    locked = jars.parse_lock(text)
    assert len({jar.file_name for jar in locked}) == len(locked) > 0
    assert all(int(jar.digest, 16) for jar in locked)
    assert "//" not in text


@pytest.mark.parametrize("line", ["a:b:1", "a:b 1", "a:b:1 12ab", f"a:b:c:d {'0' * 64}"])
def test_an_invalid_line_of_a_lock_is_named(line: str) -> None:
    with pytest.raises(SetupError, match="line 2"):
        jars.parse_lock(f"# jars\n{line}\n")


def test_an_altered_or_missing_jar_is_rejected(tmp_path: Path) -> None:
    jar = jars.Jar("g", "a", "1", sha256(b"content").hexdigest())
    with pytest.raises(SetupError, match="not downloaded"):
        jars.verify([jar], tmp_path)
    (tmp_path / "a-1.jar").write_bytes(b"content")
    jars.verify([jar], tmp_path)
    (tmp_path / "a-1.jar").write_bytes(b"content, altered")
    with pytest.raises(SetupError, match="the lock has"):
        jars.verify([jar], tmp_path)


def fake_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(("version", "fits"), [("17.0.15", True), ("21", True), ("11.0.2", False), ("25.0.1", False)])
def test_only_a_java_that_spark_supports_is_used(tmp_path: Path, version: str, fits: bool) -> None:
    home = fake_java(tmp_path / "java", version)
    found = java.find_installed({"JAVA_HOME": str(home), "PATH": ""})
    assert (found is not None) == fits


def test_java_home_precedes_the_path_unless_its_version_is_unsupported(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "old", "11.0.1"), fake_java(tmp_path / "good", "17.0.1")
    for home in (str(old), str(tmp_path / "gone")):
        found = java.find_installed({"JAVA_HOME": home, "PATH": str(good / "bin")})
        assert found is not None
        assert found.home == good


def test_a_missing_java_is_no_error() -> None:
    assert java.find_installed({"PATH": "/nonexistent"}) is None


@pytest.mark.usefixtures("own_cache")
def test_a_reduced_java_runtime_is_started_without_the_missing_module(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's java", "21.0.8", modules="java.base")
    found = java.find_installed({"JAVA_HOME": str(home), "PATH": ""})
    assert found is not None
    assert found.spark_home != found.home
    program = found.spark_home / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "Main", "x y"]
    completed = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    assert completed.stdout == "-cp|a b|--add-modules=java.sql|Main|x y|"


@pytest.mark.slow
def test_java_reads_the_trust_store(java: Java, tmp_path: Path) -> None:
    certificates = trust.system_certificates()[:5]
    if not certificates:
        pytest.skip("this Python reads its certificates one by one from a folder")
    options = trust.java_options(certificates, tmp_path)
    keytool = java.home / "bin" / "keytool"
    listed = [keytool, "-list", "-keystore", options[0].split("=", 1)[1], "-storepass", options[2].split("=", 1)[1]]
    completed = subprocess.run(list(map(str, listed)), capture_output=True, text=True, check=True, env={**os.environ})
    assert f"contains {len(certificates)} entr" in completed.stdout
