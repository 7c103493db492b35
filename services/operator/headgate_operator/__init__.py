"""The operator: makes the cluster run the apps that ``StreamApp`` resources ask for. It loses and repeats no record.

Layers, each knowing only those before it: ``resources`` (documents that people write and read), ``protocol`` (requests
to a driver and its answers), ``traces`` (an upgrade as spans), ``reconcile`` (one pure function that decides),
``pods`` (pure manifests), ``shell`` (the API server, queues, clocks). A driver pod is made as a *standby*; ownership of
the checkpoint is given to it later, by a request, and only when every other driver pod of the app is gone.
"""
