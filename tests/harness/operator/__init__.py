"""A model of the cluster in which the operator's own code runs: seeded, so that a failure can be seen again.

``store`` is the checkpoint root with its lease; ``driver`` a driver that follows the contract, unless its image has a
fault; ``cluster`` the API server, nodes and pods; ``operators`` the operators, with caches that lag and crashes;
``user_actions`` what users and the cluster do to an app; ``invariants`` what must hold after every step; ``schedule``
the run of one seed.
"""
