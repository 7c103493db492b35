"""Reads the lanes of two apps from Kafka, by the names of their topics: ``<app>.<lane>``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.compare.differences import TIME_FIELDS, LaneDifferences, compare_lane, parse_record
from headgate.errors import InputError
from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe, topic_names

#: Topics of an app that are no lanes.
_NO_LANES = ("control", "markers")


def compare_apps(
    kafka: KafkaSettings,
    first: str,
    second: str,
    lanes: Sequence[str],
    since_ms: int,
    ignored: Sequence[str],
    time_fields: Sequence[str] = TIME_FIELDS,
) -> Iterator[LaneDifferences]:
    """Yield the differences of each lane. ``lanes``: those to compare; all that both have if there are none.

    ``since_ms``: records that were written earlier do not count, by their timestamps in Kafka. Raises ``InputError`` if
    an app has no lane, or not the named one.
    """
    for lane in lanes or _common_lanes(kafka, first, second):
        ours, theirs = f"{first}.{lane}", f"{second}.{lane}"
        missing = [topic for topic in (ours, theirs) if topic not in describe(kafka, [ours, theirs])]
        if missing:
            raise InputError(f"lane {lane}: there is no topic {missing[0]}")
        yield compare_lane(
            lane,
            [parse_record(r.key, r.value, first, first) for r in _read(kafka, ours, since_ms)],
            [parse_record(r.key, r.value, second, first) for r in _read(kafka, theirs, since_ms)],
            ignored,
            time_fields,
        )


def _read(kafka: KafkaSettings, topic: str, since_ms: int) -> list[Record]:
    return [record for record in read_topic(kafka, topic) if record.timestamp_ms >= since_ms]


def _common_lanes(kafka: KafkaSettings, first: str, second: str) -> list[str]:
    names = topic_names(kafka)
    lanes = {
        app: {name.removeprefix(f"{app}.") for name in names if name.startswith(f"{app}.")} for app in (first, second)
    }
    for app, found in lanes.items():
        if not found - {*_NO_LANES}:
            raise InputError(f"app {app}: there are no topics {app}.<lane> at {kafka.bootstrap}")
    return sorted(lanes[first] & lanes[second] - {*_NO_LANES})
