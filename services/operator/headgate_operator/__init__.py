"""The operator: keeps what a ``StreamApp`` asks for and what runs on the cluster the same, without losing or
repeating a record.

Layers, each knowing only those before it: ``resources`` (what people write and read), ``protocol`` (what a driver is
asked and says), ``traces`` (an upgrade as spans), ``reconcile`` (one pure function that decides), ``pods`` (pure
manifests), ``shell`` (the API server, queues, clocks). A driver pod is made as a *standby*; ownership of the
checkpoint is given to it later, by a request, and only when every other driver pod of the app is gone.
"""
