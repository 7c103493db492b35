"""Programs of users in the command: their settings with what a laptop needs, and a run against a local broker.

Promises: a program is run by the process that also runs it in a cluster (``streamcore.service.program``).
"""
