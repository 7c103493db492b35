"""The lease of a checkpoint: one owner process at a time, on a file system or in a bucket.

Exists because two processes on one checkpoint would both write. Promises that ``Lease.check`` raises ``Fenced`` in an
owner that lost the lease. Knows neither batches nor epochs, and compares no clocks of two machines.
"""
