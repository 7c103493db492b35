"""The services on real servers under faults, each with its expected output by SQL."""
