"""Live views of a demo run: pure functions from figures to terminal output, and the code that gathers the figures.

Promises: a view fits the terminal and never blocks the run.
"""
