"""The keyed stage that removes repeated events, before everything else that an app does with them.

Copies of one event may be in different partitions, and what comes after has other keys: rules and windows are keyed by
a user or a card. So for streams with ``deduplicate`` an app gets one more keyed stage, the first, whose key is the id
of the event. The app's own stateless stage then runs behind it, on the events that are left, and the stages of the app
follow. An app without such a stream is not changed.

Of the copies in a cut the first by partition and offset is used. An event keeps its partition and offset, by which the
next stage restores the order, and the watermark was measured before; so a later stage gets what it would get if the
copies had never been sent. An event that is behind the watermark by more than the horizon is late: its first copy may
be forgotten. The app says with ``WriteLate`` what becomes of it. All state is that of
``streamcore.operators.deduplication``, one operator for each stream.
"""
