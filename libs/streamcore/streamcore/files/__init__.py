"""Files as the records of a stream: rows of Parquet files, lines of text files, in a folder or a bucket.

The files of a stream, in the order of their names, are one partition (``offsets.FILES_PARTITION``) of its topic: the
offset of a record counts the rows of all files before it. ``listing`` counts the rows once; ``reader`` reads a range.
"""
