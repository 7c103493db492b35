"""The general path of windows: any assigner, trigger and evictor, evaluated window by window.

The package exists for the windows that have no columnar form. It promises the decisions of ``windowing.reference``, and
computes the values in columns after all decisions of a cut. The sliced path and the session path are faster, but each
supports only some windows.
"""
