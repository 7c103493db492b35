"""The columnar path of windows that fire before or after their ends, of count windows, and of sessions that accept late
elements.

The clock and the watermark do not change while the rows of a cut are added, so the rows at which a trigger fires follow
from the state of the window and the position of a row in its window. The package promises the panes, the dropped
elements and the stored rows of the general path. It supports the triggers of ``trigger_columns`` and aggregates, and
leaves to the general path the cuts of a key whose sessions do not simply grow.
"""
