"""The checkpoint of an app: its identity, its epoch, the offsets of each batch, and whether it is whole.

``checkpoint`` the files, the app's identity and the check of Spark's own logs before a start; ``epoch`` the number that
a restore raises; ``epochs`` several checkpoints side by side, one per epoch; ``offset_log`` the offsets of each batch;
``origin`` the savepoint that it was restored from. Promises to reject a damaged or foreign checkpoint before Spark
starts. Knows no Spark: it looks at files only.
"""
