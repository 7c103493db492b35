"""What of the JVM's messages reaches standard error."""

from __future__ import annotations

import pytest

from streamcore.spark.jvm_process import drop_noise

OURS = b"headgate-rules: running: app fraud, epoch 3, batch 812 is committed\n"
STATE = b'Exception in thread "stateConnectionListenerThread" '
TRACE = b"""\tat java.base/sun.nio.ch.ServerSocketChannelImpl.accept(ServerSocketChannelImpl.java:399)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""
FULL = b"org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\n"
CAUSE = b"""Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\t... 40 more
"""


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (STATE + b"java.nio.channels.ClosedByInterruptException\n" + TRACE, b""),
        (STATE + b"java.nio.channels.AsynchronousCloseException\n" + TRACE, b""),
        (STATE + FULL + TRACE + CAUSE, STATE + FULL),
        (b'Exception in thread "main" a.B: no\n' + TRACE + b"Caused by: c.D: why\n" + TRACE,
         b'Exception in thread "main" a.B: no\nCaused by: c.D: why\n'),
        (b"\n", b""),
        (b"\tat the beginning of a line of someone else\n", b"\tat the beginning of a line of someone else\n"),
    ],
)  # fmt: skip
def test_an_ended_thread_is_a_line_or_none(written: bytes, wanted: bytes) -> None:
    lines = [OURS, *written.splitlines(keepends=True), OURS]
    assert b"".join(drop_noise(lines)) == OURS + wanted + OURS
