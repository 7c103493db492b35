"""The columnar path of session windows, which fire once at their end or are emitted as revisions.

Sessions of different keys have different bounds, so they cannot share slices of event time. The package promises that
the cost of a cut depends on its rows and its ending sessions, not on the number of live sessions. It supports no
trigger except the end of the window.
"""
