"""Records that an app rejected: read, selected, repaired and sent again.

Promises: each record is sent again at most once, also after a crash. Does not know why the app rejected it beyond the
reason that the record carries.
"""
