"""The rules app: events and rules in, alerts out."""
