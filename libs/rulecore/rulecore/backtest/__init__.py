"""Back-tests: evaluate rules on past events, count the alerts, and compare them with those of the live versions.

The code of production evaluates the rules. The package does not read events; the caller supplies them.
"""
