"""Records that are one line of text: CSV and access logs.

The columnar path accepts the same lines, with the same values, as the reference, which decodes one line.
"""
