"""The folder that an app's life hangs on: who owns it, which epoch it is in, which app it belongs to, is it whole.

``lease`` one owner at a time; ``epoch`` the number that a restore raises; ``layout`` the files, the app's identity and
the check of Spark's own logs before a start; ``epochs`` several of
them side by side, and which one is next. Knows no Spark: it looks at files only.
"""
