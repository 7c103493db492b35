"""Session windows: how events merge into sessions, their table, and the group of their rules.

Promises: sessions do not depend on how the input is cut. Refuses to know alerts.
"""
