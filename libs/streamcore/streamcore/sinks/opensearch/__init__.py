"""The OpenSearch sink: rows of lanes as documents of an index behind an alias, and a rebuild of that index.

Idempotent, not exactly once: a document carries the version of the cut that wrote it, so a cut that is written again
changes nothing, an older one never wins over a newer one, and a reader may see a part of a cut for a while. The only
package that imports opensearchpy, and only when a sink is opened (0.6 s). Does not know Spark and the computation of
an app.
"""
