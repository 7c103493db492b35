"""Windows over a number of events of a key: the group of their rules and its table of panes.

A window depends only on the order of its key's events. No window waits for the watermark.
"""
