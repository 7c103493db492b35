"""The laboratory: the rules service and its neighbours under random faults, judged by an oracle of its own.

``make lab`` runs rounds for an hour. A round starts an app on an empty checkpoint, sends events for some minutes, kills
and suspends every process by a schedule that the seed gives, drains the app and compares all that came out with what
the oracle says. The oracle (``oracle``, ``judge``) is plain Python over the records of the topics. It imports nothing
of the product, so one mistake cannot be on both sides. ``docs/testing.md`` says how to run it and how to repeat a
failure.
"""
