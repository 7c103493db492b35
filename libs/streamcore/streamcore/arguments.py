"""Checks the arguments of a stream program in the line in which they are written."""

from __future__ import annotations

import re

from streamcore.errors import ConfigError

#: Pattern of the whole name of an app. Names of topics, transactional ids, pods and services begin with it, so it is
#: what Kafka and Kubernetes allow, with space for what follows.
APP_NAME = r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?"
APP_NAME_RULE = "use a-z, 0-9 and -, at most 40, a-z first and no - at the end"


def check_app_name(name: str) -> None:
    """Raise ``ConfigError`` unless the name is one that an app may have."""
    if not re.fullmatch(APP_NAME, name):
        raise ConfigError(f"app name {name!r}: {APP_NAME_RULE}")


def check_type(method: str, value: object, expected: type, remedy: str) -> None:
    """Raise ``ConfigError`` unless the value is of the type. ``remedy``: what to write instead."""
    if isinstance(value, type):
        if issubclass(value, expected):
            remedy = f"write {value.__name__}(...)"
        raise ConfigError(f"{method}: takes {_with_article(expected)}, not the class {value.__name__}; {remedy}")
    if not isinstance(value, expected):
        raise ConfigError(f"{method}: takes {_with_article(expected)}, not {_with_article(type(value))}; {remedy}")


def check_function(method: str, value: object, remedy: str) -> None:
    """Raise ``ConfigError`` unless the value is a function or another callable object. A class is none."""
    if isinstance(value, type) or not callable(value):
        what = f"the class {value.__name__}" if isinstance(value, type) else _with_article(type(value))
        raise ConfigError(f"{method}: takes a function, not {what}; {remedy}")


def check_whole(**values: object) -> None:
    """Raise ``ConfigError`` unless all values, by the names of their arguments, are whole numbers."""
    for name, value in values.items():
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ConfigError(f"{name}: takes a whole number, not {value!r}; write such as 100")


def _with_article(cls: type) -> str:
    return f"{'an' if cls.__name__[0] in 'AEIOUaeiou' else 'a'} {cls.__name__}"
