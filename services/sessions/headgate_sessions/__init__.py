"""The sessions app: user events in; sessions, corrected while they change, and metrics for a dashboard out."""
