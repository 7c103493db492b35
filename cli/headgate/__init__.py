"""The ``headgate`` command: everything a person types, and nothing a service needs to run.

It is the top layer: it may import the services and the libraries, and no one imports it.
"""
