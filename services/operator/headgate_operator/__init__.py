"""The operator: makes the cluster run the apps that ``StreamApp`` resources describe. It loses and repeats no record.

Layers, each of which imports only those before it: ``resources`` (the custom resources as values), ``traces`` (an
upgrade as spans), ``reconcile`` (the pure function that decides), ``pods`` (manifests, as pure functions), ``runtime``
(the API server, queues, clocks). A driver pod starts as a *standby*. The operator promotes it later, and only when
every other driver pod of the app is gone.
"""
