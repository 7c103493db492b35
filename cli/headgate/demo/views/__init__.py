"""Live views of a demo run: pure functions from a state to a picture, and the code that gathers the state.

Promises: a view fits the terminal and never blocks the run.
"""
