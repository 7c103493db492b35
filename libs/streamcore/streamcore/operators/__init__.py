"""The stateful steps of a topology: windows, keyed functions, joins, rolling totals and deduplication.

The package exists so that each step is one object with one contract (``operators.base.Operator``): frames and the time
of a cut in, frames by port out, all state in tables. An operator promises to be a pure function of these, so the same
code runs under Spark, in-process and in a back-test. It does not know Kafka, Spark, checkpoints or other operators.
"""
