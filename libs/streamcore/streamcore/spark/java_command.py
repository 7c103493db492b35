"""Builds the command that starts Spark's JVM on the driver's machine, without Spark's launcher.

``spark-submit`` starts two shells and a JVM that prints this command, and the class ``SparkSubmit`` prepares what only
a cluster needs: together more than half a second of processor time in each start. Here the gateway, the class that
``SparkSubmit`` would start for Python, is started itself, with Spark's settings as system properties. ``spark-env.sh``
and ``spark-defaults.conf`` are not read: the settings of an app are complete. A driver on Kubernetes does without this
module, because ``SparkSubmit`` checks the address of the cluster.

Promises: classes are found in the same order as behind ``spark-submit``, so both can use one archive of classes.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from streamcore.errors import ConfigError

GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"
#: What Spark's launcher adds for every JVM (``org.apache.spark.launcher.JavaModuleOptions``), without the incubator
#: module for linear algebra: with it a JVM cannot use its archived module graph.
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
            *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
            *("sun.security.action", "sun.util.calendar"),
        )
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
#: What ``SparkSubmit`` sets for Python in a process of its own.
_SUBMIT_PROPERTIES = {
    "spark.app.name": "pyspark-shell",
    "spark.submit.deployMode": "client",
    "spark.submit.pyFiles": "",
}


def gateway_command(submit: Sequence[str], java_home: str | None) -> list[str]:
    """Return the command that starts the gateway with the settings of ``submit``.

    ``submit``: the path of ``spark-submit`` and its arguments, as pyspark calls it; each setting follows ``--conf``.
    ``java_home``: folder of the Java runtime; None: that of ``java`` on the PATH. Raises ``ConfigError`` without one.
    """
    settings = dict(text.split("=", 1) for flag, text in pairwise(submit) if flag == "--conf")
    properties = _SUBMIT_PROPERTIES | settings
    class_path = os.pathsep.join([settings["spark.driver.extraClassPath"], str(spark_home(submit) / "conf")])
    return [
        _java(java_home),
        *("-cp", class_path, f"-Xmx{settings['spark.driver.memory']}"),
        *shlex.split(settings["spark.driver.extraJavaOptions"]),
        *MODULE_OPTIONS,
        *(f"-D{name}={value}" for name, value in properties.items()),
        GATEWAY,
    ]


def gateway_environment(submit: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with what the scripts behind ``spark-submit`` add."""
    return {**environment, "SPARK_HOME": str(spark_home(submit)), "PYTHONHASHSEED": "0"}


def spark_home(submit: Sequence[str]) -> Path:
    """Return the folder of Spark, whose ``spark-submit`` the command calls."""
    return Path(submit[0]).parent.parent


def _java(home: str | None) -> str:
    java = shutil.which("java") if home is None else shutil.which("java", path=str(Path(home) / "bin"))
    if java is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME ({home})"
        raise ConfigError(f"there is no Java {where}; install Java 17 or 21, or set JAVA_HOME to its folder")
    return java
