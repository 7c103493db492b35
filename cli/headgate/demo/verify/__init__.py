"""Compares the output of a demo run with the expected output.

Promises: the comparison reads the output with clients that share no code with the app, and every output is right,
missing, unexpected, duplicated or wrong. Does not start or stop anything.
"""
