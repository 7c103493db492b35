"""Access: roles and the table of routes, sessions, and the guard in front of every request."""
