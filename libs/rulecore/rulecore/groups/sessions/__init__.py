"""Session windows: how events merge into sessions, their table, and the group of their rules.

Sessions do not depend on how the input is divided into cuts. This package does not know alerts.
"""
