"""The columnar path of session windows, which fire once at their end or are emitted as revisions.

The package exists because sessions of different keys differ, so they cannot share slices of event time. It promises
that a cut costs what its rows and ending sessions cost. It does not know triggers other than the end of the window.
"""
