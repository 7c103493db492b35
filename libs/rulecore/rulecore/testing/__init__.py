"""The tests in a rule document: runs them in this process and compares the alerts with the expected ones.

The decoder and the kernel are those of production. The package knows neither files nor terminals.
"""
