"""Records of a stream outside an app: decoded for commands, read from files, replayed into a topic.

Promises: a row of a file gives the same event here as in the app that reads its replay.
"""
