"""One module per group of commands.

A module here defines one click command or group and nothing that is useful without the terminal; the work is
done by the modules it calls. ``headgate.main`` lists them by name and imports a module only when it is used, so
that ``headgate --help`` answers at once.
"""
