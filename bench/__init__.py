"""Measurements of the rules app on a real broker, each checked against an oracle before it says a figure.

``python -m bench`` runs them. CPU-seconds per million events is the figure that survives a shared machine; times and
latencies are upper bounds unless the machine was idle, so every result carries the load average.
"""
