"""The general path of windows: any assigner, trigger and evictor, evaluated window by window.

The package exists for the windows that have no columnar form. It promises the decisions of ``windowing.reference``; it
computes values in columns after all decisions of a cut. It does not know the sliced and the session path.
"""
