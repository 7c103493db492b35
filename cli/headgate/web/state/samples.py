"""The newest records of a stream, as they are on its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from headgate.explain.kafka_reader import KafkaReader
from headgate.web.state.dead_letters import show_bytes
from headgate.web.state.lanes.newest_first import NewestFirst
from headgate.web.state.values import SampleRecordValue, StreamValue
from streamcore.kafka.settings import KafkaSettings

_CHARACTERS = 2_000
_VALUES = 4  # of a field
_VALUE_CHARACTERS = 40


def read_sample(kafka: KafkaSettings, topic: str, count: int) -> list[SampleRecordValue]:
    """Return the newest records of a topic."""
    found = []
    for record in NewestFirst(KafkaReader(kafka), topic):
        text = (show_bytes(record.value) or "")[:_CHARACTERS]
        found.append(
            SampleRecordValue(
                topic=topic,
                partition=record.partition,
                offset=record.offset,
                time_ms=record.timestamp_ms,
                text=text,
            )
        )
        if len(found) >= count:
            break
    return found


def seen_values(stream: StreamValue, sample: Sequence[SampleRecordValue]) -> Mapping[str, Sequence[str]]:
    """Return some values of each field that stands in JSON records under its own name."""
    found: dict[str, dict[str, None]] = {field.name: {} for field in stream.fields}
    for one in sample:
        try:
            document = orjson.loads(one.text)
        except ValueError:
            continue
        for name, values in found.items() if isinstance(document, dict) else ():
            if len(values) < _VALUES and document.get(name) is not None:
                value = document[name]
                text = value if isinstance(value, str) else orjson.dumps(value).decode()
                values[text[:_VALUE_CHARACTERS]] = None
    return {name: [*values] for name, values in found.items()}
