"""Rules of a running app: read from files, published through the control topic, and read back.

Promises: a bundle without problems compiles; published rules are on the control topic, whether or not the app runs.
"""
