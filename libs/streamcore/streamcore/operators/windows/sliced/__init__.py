"""The columnar path of tumbling, sliding and calendar windows, whose bounds are equal for all keys.

An element is aggregated once, into its slice, however many windows contain it. A window that ends merges its slices.
The package promises the panes of the reference. It supports no trigger before the end of the window, and passes late
elements to the general path.
"""
