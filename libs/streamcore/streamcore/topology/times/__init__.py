"""The event time of the rows of a stream: which columns hold it, and its assignment from another column.

A step that assigns the time begins a time of its own: each source partition that reaches it has a watermark of its own
there (``streamcore.app.DerivedSource``), which follows from the times that the step assigns.
"""
