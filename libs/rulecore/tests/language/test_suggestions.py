"""The hint for a field that a stream does not have."""

from __future__ import annotations

from rulecore.language.suggestions import suggest_field
from streamcore.schema import StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "logins",
        "event_time": "at",
        "fields": {
            "at": {"type": "timestamp not null", "from": "@timestamp"},
            "who": {"type": "string", "from": "user.`e mail`"},
            "source_ip": "string",
        },
    }
)


def test_a_path_in_the_record_gives_the_field_that_is_from_there() -> None:
    assert suggest_field("user.`e mail`", SCHEMA) == "write who, the field from user.`e mail`"


def test_another_name_gives_the_most_similar_field() -> None:
    assert suggest_field("source.ip", SCHEMA) == "did you mean source_ip? accepted here: at, who, source_ip"
