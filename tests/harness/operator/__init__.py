"""A model of the cluster in which the operator's own code runs: seeded, so that a failure can be seen again.

``store`` is the checkpoint's root with its lease; ``driver`` a driver that follows the contract, or an image that does
not work; ``cluster`` the API server, nodes and pods; ``operators`` caches that lag and processes that die; ``people``
what is done to it; ``laws`` what must hold after every step; ``schedule`` one seed from start to end.
"""
