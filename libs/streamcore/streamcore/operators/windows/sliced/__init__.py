"""The columnar path of tumbling, sliding and calendar windows, which are the same for all keys.

The package exists so that an element is aggregated once, into its slice of event time, whatever the number of windows
that hold it; a window that ends combines its slices. It promises the panes of the reference. Late elements go to the
general path; it does not know other triggers than the end of the window.
"""
