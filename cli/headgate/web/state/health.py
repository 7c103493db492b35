"""How an app works: the lag of each input partition, who holds the watermark back, the phases of its cuts.

Positions are those of the checkpoint's last planned cut. Watermarks and phases are metrics of the process, read from
its port for Prometheus on this machine.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from headgate.web.state.overview import read_process
from headgate.web.state.values import HealthValue, PartitionHealth, PhaseValue
from streamcore.checkpoint.epochs import EpochStore
from streamcore.errors import StreamError
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import TopicPartition
from streamcore.service.config.documents import read_settings
from streamcore.storage.location import location

_SAMPLE = re.compile(r"^headgate_(\w+?)(?:_seconds)?(?:_total)?\{([^}]*)\} ([0-9.eE+-]+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TIMEOUT_S = 1.0
_BEHIND_S = 1.0  # a partition this close to the latest one holds nothing back


def read_health(kafka: KafkaSettings, settings: Path | None) -> HealthValue:
    """Return the health of an app. ``settings``: its settings file; without it nothing is known."""
    process = read_process(settings, time.time())
    if settings is None:
        note = "start the console with --app-settings FILE, the settings file of the app"
        return HealthValue(process=None, partitions=(), phases=(), notes=(note,))
    notes, samples = list[str](), list[tuple[str, Mapping[str, str], float]]()
    document = read_settings(settings)
    telemetry = document.get("telemetry")
    port = telemetry.get("prometheus_port") if isinstance(telemetry, dict) else None
    if port is None:
        notes.append(
            "Set telemetry.prometheus_port in the app's settings to see watermarks and the phases of its cuts."
        )
    else:
        try:
            samples = read_samples(int(str(port)))
        except (OSError, ValueError) as error:
            notes.append(f"The metrics of the process on port {port} cannot be read: {error}")
    try:
        positions = _positions(str(document["checkpoint"]))
    except (StreamError, KeyError) as error:
        positions = {}
        notes.append(f"The checkpoint cannot be read: {error}")
    topics = sorted({topic for topic, _ in positions})
    ends = KafkaPartitionOffsets(kafka, topics).latest() if topics else {}
    return HealthValue(
        process=process,
        partitions=tuple(partition_health(positions, ends, samples)),
        phases=tuple(phase_values(samples)),
        notes=tuple(notes),
    )


def partition_health(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    samples: list[tuple[str, Mapping[str, str], float]],
) -> list[PartitionHealth]:
    """Return the partitions, those that hold the watermark back and lag most first."""
    delays = {
        (labels["topic"], int(labels["partition"])): value
        for name, labels, value in samples
        if name.startswith("partition_watermark_delay")
    }
    most, least = max(delays.values(), default=0.0), min(delays.values(), default=0.0)
    found = [
        PartitionHealth(
            topic=topic,
            partition=partition,
            position=position,
            end=ends.get((topic, partition), position),
            delay_s=delays.get((topic, partition)),
            holds_back=delays.get((topic, partition)) == most and most > least + _BEHIND_S,
        )
        for (topic, partition), position in positions.items()
    ]
    return sorted(found, key=lambda one: (not one.holds_back, -one.lag, one.topic, one.partition))


def phase_values(samples: list[tuple[str, Mapping[str, str], float]]) -> list[PhaseValue]:
    """Return the phases of a cut, the longest first."""
    sums, counts = dict[str, float](), dict[str, float]()
    for name, labels, value in samples:
        if name.startswith("cut_duration") and name.endswith("_sum"):
            sums[labels["phase"]] = value
        elif name.startswith("cut_duration") and name.endswith("_count"):
            counts[labels["phase"]] = value
    found = [
        PhaseValue(name=phase, seconds=total / counts[phase], cuts=int(counts[phase]))
        for phase, total in sums.items()
        if counts.get(phase)
    ]
    return sorted(found, key=lambda one: (-one.seconds, one.name))


def read_samples(port: int) -> list[tuple[str, Mapping[str, str], float]]:
    """Return the samples with labels that a process on this machine serves: name, labels, value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_TIMEOUT_S) as answer:
        return parse_samples(answer.read().decode())


def parse_samples(text: str) -> list[tuple[str, Mapping[str, str], float]]:
    """Parse samples in the text form of Prometheus; those without labels are left out."""
    return [(name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _SAMPLE.findall(text)]


def _positions(checkpoint: str) -> Mapping[TopicPartition, int]:
    """Return the next offset of each input partition, after the last cut that was planned."""
    root = EpochStore(location(checkpoint)).newest()
    if root is None:
        return {}
    # a running app removes old files meanwhile
    found = (root.offsets.read(batch) for batch in reversed(root.offsets.batches()))
    newest = next((one for one in found if one is not None), None)
    return {} if newest is None else newest.end.offsets
