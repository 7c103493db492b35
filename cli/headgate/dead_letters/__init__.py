"""Dead letters of an app: reads, selects and repairs them, and sends them again.

Promises: each dead letter is sent again at most once, also after a crash.
"""
