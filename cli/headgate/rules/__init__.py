"""Reads rules from files, publishes them on an app's control topic, and reads published rules.

Promises: a bundle without problems compiles; published rules are on the control topic, whether or not the app runs.
"""
