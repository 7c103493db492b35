"""The tests that a rule document carries: run in this process and compared with the expected alerts.

Promises: the decoder and the kernel are those of production. Refuses to know files and terminals.
"""
