"""Rolling totals: aggregates over the last hour or day of each key, emitted whenever they change.

The package exists for profiles and rankings that always hold the current totals, which sliding windows give only as a
row for each slide. It promises totals that depend on the rows and the watermark alone. It does not know how its output
is stored.
"""
