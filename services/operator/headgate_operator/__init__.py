"""The operator: makes the cluster run the apps that ``StreamApp`` resources describe. It loses and repeats no record.

Layers, each knowing only those before it: ``resources`` (documents that people write and read), ``traces`` (an upgrade
as spans), ``reconcile`` (one pure function that decides), ``pods`` (pure manifests), ``runtime`` (the API server,
queues, clocks). A driver pod starts as a *standby*; the operator gives it the checkpoint later, by a command, and only
when every other driver pod of the app is gone.
"""
