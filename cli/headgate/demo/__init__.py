"""The demo behind ``headgate up``: local servers, one service, a simulated shop, a live view and a verification.

Promises: whatever ends a run, it stops in order and the next run continues it. The rest of the command does not import
this package, except for the commands ``up`` and ``demo``.
"""
