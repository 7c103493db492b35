"""Windows over a number of events of a key: the group of their rules and its table of panes.

Promises: windows follow from the order of the key's events alone. Refuses to know the watermark: nothing waits for it.
"""
