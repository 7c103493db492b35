"""The lease of a checkpoint: one owner process at a time, on a file system or in a bucket.

Without it, two processes on one checkpoint could both write. ``Lease.check`` raises ``Fenced`` in an owner that lost
the lease. No clocks of two machines are compared.
"""
