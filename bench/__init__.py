"""Measurements of the rules app on a real broker, each checked against an oracle before it reports a figure.

``python -m bench`` runs them. Of the figures, CPU-seconds per million events depend least on other programs on the
machine. Times and latencies are upper bounds unless the machine was idle, so every result has the load average.
"""
