"""Compares the output of two apps, such as an app and its fork: records of only one of them, and differing ones.

``differences`` is a pure function of the records of both; ``lanes`` reads them from Kafka; ``render`` and ``plot`` show
the result as text, JSON and SVG.
"""
