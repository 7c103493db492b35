"""Savepoint commands: create, compare, restore and purge.

Promises: a checkpoint is owned while it is read or written. Does not know the apps' logic.
"""
