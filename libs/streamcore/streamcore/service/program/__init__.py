"""Programs of users as services: a topology in a module or a file gets all that a service of this repository has.

``reference`` loads the program, ``settings`` has the settings that every program has, ``app`` binds the topology to its
topics, and ``definition`` makes the ``ServiceDefinition`` of them. ``__main__`` is the process.
"""
