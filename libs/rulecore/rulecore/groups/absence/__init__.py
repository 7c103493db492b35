"""Absence rules: expected keys, their deadlines, and the alerts when the watermark passes one without an event.

Promises: alerts follow from the events on time and the watermark alone. Does not know the clock.
"""
