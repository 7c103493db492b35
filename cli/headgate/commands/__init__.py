"""One module per group of commands.

A module defines one click command or group: its options, and calls of the modules that do the work. ``headgate.main``
imports a module only when its command is used, so that ``headgate --help`` is fast.
"""
