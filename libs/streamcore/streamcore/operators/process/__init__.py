"""Functions of the user: with a key, states and timers (``operator``), or without a key (``keyless``).

``operator`` promises that each call has an effect completely or not at all, and defines the order of the calls of a
cut. The package knows neither topologies nor Spark.
"""

from streamcore.operators.process.operator import FAILED_CONTROL, FAILED_SECOND, ProcessOperator, SecondInput

__all__ = ["FAILED_CONTROL", "FAILED_SECOND", "ProcessOperator", "SecondInput"]
