"""Records that are one line of text: CSV and access logs.

Promises that the columnar path accepts the same lines as the path for one line. Knows no format with nesting.
"""
