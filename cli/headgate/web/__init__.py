"""The console: a web server on Kafka, with ``/api/v1`` for programs and pages for people.

It keeps no state of its own: its pages come from the topics of an app, its memory is a cache of them, and it writes
the records that the commands write. The URL of a page is all that it depends on. Promises: no request is answered
without a session, a permitted ``Host`` and the role that its route needs; no page holds a script or a style of its own.
Does not know Spark. So far it listens on this machine alone.

::

    commands.console ─▶ server ─▶ api, pages ─▶ changes ─▶ state ─▶ problems, settings
                              └─▶ access
"""
