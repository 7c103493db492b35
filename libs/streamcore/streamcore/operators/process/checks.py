"""Checks a function of the user where a step is written: what is visible before the first event."""

from __future__ import annotations

from collections.abc import Sequence

from streamcore.arguments import check_type
from streamcore.errors import ConfigError
from streamcore.keyed.broadcast import declared_broadcast_states
from streamcore.keyed.function import KeyedFunction, ProcessFunction
from streamcore.keyed.value_codec import describe


def check_function(function: KeyedFunction, base: type[KeyedFunction], methods: Sequence[str]) -> None:
    """Raise ``ConfigError`` unless the function extends ``base``, and itself defines these methods."""
    check_type("process", function, base, f"write a class that extends {base.__name__}, and give its instance")
    name = type(function).__name__
    for method in methods:
        if getattr(type(function), method) is getattr(base, method):
            raise ConfigError(f"{name}: define a method {method}")
    if not isinstance(function.version, int):
        raise ConfigError(f"{name}: version is {describe(function.version)}; it must be a whole number, not a state")
    states = declared_broadcast_states(type(function))
    if states and "process_control" not in methods:
        raise ConfigError(
            f"{name}: broadcast state {min(states)} has no input; connect a broadcast stream, or declare a MapState"
        )
    if base is not ProcessFunction and hasattr(function, "process_control"):
        raise ConfigError(f"{name}: it has two streams with a key, so that no broadcast stream calls process_control")
