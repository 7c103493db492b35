"""The sessions app: user events in; sessions, corrected while they change, and figures for a dashboard out."""
