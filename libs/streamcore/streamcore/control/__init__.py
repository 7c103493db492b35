"""The control protocol of a running service: commands in, one status document out.

``commands`` and ``status`` are the messages, shared by the driver and the operator, and import nothing but
``streamcore.errors``. ``channel`` and ``pod_channel`` carry them (files, annotations of the pod), ``server`` executes
each command once and publishes the status, ``reporter`` keeps the status up to date. Promises: every command gets one
result under its id, also after a restart. Does not know how a command is executed: that is ``streamcore.service``.
"""
