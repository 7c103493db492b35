"""The input of a rule, with the topic of each of its streams: of ``--topic``, else of the settings file of the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headgate.errors import InputError
from headgate.records.formats import RecordFormats
from rulecore.errors import RuleSetError
from rulecore.streams import RuleInput, is_union, stream_names
from streamcore.schema import StreamSchema


def find_input(on: str, streams: Mapping[str, StreamSchema], given: Sequence[str], formats: RecordFormats) -> RuleInput:
    """Return the input of a rule. ``given``: the values of ``--topic``; a stream without one has the topic of the
    settings file, else the one with its name. Raises ``InputError`` if there is no such stream."""
    topics = {**formats.topics, **by_stream(given, on, "--topic")}
    try:
        return RuleInput.find(on, streams, topics)
    except RuleSetError as error:
        raise InputError(f"{error}; see --streams") from None


def by_stream(given: Sequence[str], on: str, option: str) -> dict[str, str]:
    """Return the value of an option for each stream, from texts such as ``STREAM=VALUE``; for one stream ``VALUE`` is
    enough. Raises ``InputError`` for a text that names no stream of ``on``."""
    names, found = stream_names(on), dict[str, str]()
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name in names):
            if is_union(on):
                raise InputError(f"{option} {text}: write {' and '.join(f'{option} {n}=...' for n in names)}")
            name, value = on, text
        if name in found:
            raise InputError(f"{option} {text}: {name} has {found[name]} already; give each stream one")
        found[name] = value
    return found
