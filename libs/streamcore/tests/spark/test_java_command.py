"""The command of the JVM has the options and the class path that Spark's own launcher would give it."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pyspark
import pytest

from streamcore.errors import ConfigError
from streamcore.spark.java_command import GATEWAY, gateway_command, gateway_environment
from streamcore.spark.session import SparkSettings, _options, class_path

HOME = Path(pyspark.__file__).parent
#: Options of the launcher that are left out: a module that nothing uses, and a database of Hive.
LEFT_OUT = {"--add-modules=jdk.incubator.vector", "-Dderby.connection.requireAuthentication=false"}


def _submit(settings: SparkSettings) -> list[str]:
    """Return the command with which pyspark starts a JVM."""
    conf = [argument for pair in _options(settings).items() for argument in ("--conf", "=".join(pair))]
    return [str(HOME / "bin" / "spark-submit"), *conf, "pyspark-shell"]


def _fake_java(home: Path) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return home


def _launcher_command(submit: list[str]) -> list[str]:
    """Return the command that Spark's launcher makes of ``submit``."""
    java = shutil.which("java", path=os.pathsep.join([f"{os.environ.get('JAVA_HOME', '')}/bin", os.environ["PATH"]]))
    assert java is not None, "the fixture has found a Java"
    main = ["-cp", f"{HOME}/jars/*", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
    environment = {"SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13", "JAVA_HOME": str(Path(java).parent.parent)}
    done = subprocess.run([java, *main, *submit[1:]], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip("\n\0").split("\0")


@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_the_options_are_those_of_sparks_launcher() -> None:
    submit = _submit(SparkSettings(None, driver_memory="700m", java_options=("-Dtext=a",)))
    theirs, ours = _launcher_command(submit), gateway_command(submit, os.environ["JAVA_HOME"])
    end = theirs.index("org.apache.spark.deploy.SparkSubmit")
    expected = [option for option in theirs[3:end] if option not in LEFT_OUT]
    assert [option for option in ours[3 : ours.index(GATEWAY)] if not option.startswith("-Dspark.")] == expected
    # An archive of classes fits both: it asks for a class path that begins with the one that it was made with.
    assert f"{theirs[2]}:".startswith(f"{ours[2]}:")


def test_all_settings_are_system_properties(tmp_path: Path) -> None:
    settings = SparkSettings(None, extra={"spark.text": "a b = c"})
    command = gateway_command(_submit(settings), str(_fake_java(tmp_path)))
    properties = {name: value for name, _, value in (o[2:].partition("=") for o in command if o.startswith("-Dspark."))}
    assert properties.items() >= _options(settings).items()
    assert properties["spark.text"] == "a b = c"
    assert properties["spark.submit.deployMode"] == "client"
    assert command[-1] == GATEWAY


def test_options_of_java_are_split_as_a_shell_does(tmp_path: Path) -> None:
    settings = SparkSettings(None, java_options=('-Dname="two words"',))
    assert "-Dname=two words" in gateway_command(_submit(settings), str(_fake_java(tmp_path)))


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"no Java in JAVA_HOME .{tmp_path}"):
        gateway_command(_submit(SparkSettings(None)), str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no Java on the PATH"):
        gateway_command(_submit(SparkSettings(None)), None)


def test_the_environment_names_the_folder_of_spark() -> None:
    environment = gateway_environment(_submit(SparkSettings(None)), {"OTHER": "1"})
    assert environment == {"OTHER": "1", "SPARK_HOME": str(HOME), "PYTHONHASHSEED": "0"}


def test_the_class_path_has_each_jar_of_spark_once_but_machine_learning(tmp_path: Path) -> None:
    entries = class_path(tmp_path)
    all_jars = {str(jar) for jar in (HOME / "jars").glob("*.jar")}
    left_out = all_jars - set(entries)
    assert [Path(jar).name.partition("-2")[0].partition("_")[0] for jar in left_out] in ([], ["spark-mllib"])
    assert len(entries) == len(set(entries))
    assert set(entries) - all_jars == {f"{tmp_path}/*"}
    assert class_path(None) == entries[:-1], "an archive of the classes of the one serves the other"
    assert all(before != after for before, after in pairwise(entries))
