"""The environment variables that Headgate's processes read. The module that reads a variable declares it.

``docs/reference/environment.md`` is generated from the declarations; a variable that is read without one is an error
of the generator (``tools.reference.environment``).
"""

from __future__ import annotations

import enum
from typing import Self


class Reader(enum.StrEnum):
    """A process that reads environment variables."""

    SERVICE = "services"
    WORKER = "Python workers"
    OPERATOR = "operator"
    COMMAND = "command"


class EnvironmentVariable(str):
    """The name of an environment variable, as a string that also has its description.

    ``readers``: the processes that read it, or a library in them. ``default``: what they take without the variable, in
    words; empty if it has no default. ``secret``: whether the value is a secret.
    """

    description: str
    readers: tuple[Reader, ...]
    default: str
    secret: bool

    def __new__(cls, name: str, description: str, *readers: Reader, default: str = "", secret: bool = False) -> Self:
        """Declare a variable."""
        variable = super().__new__(cls, name)
        variable.description, variable.readers = description, readers
        variable.default, variable.secret = default, secret
        return variable


#: Declared here, because packages that cannot import each other read it.
JAVA_HOME = EnvironmentVariable(
    "JAVA_HOME",
    "Folder of the Java runtime.",
    *(Reader.COMMAND, Reader.SERVICE),
    default="`java` on the PATH; the command then downloads one",
)
