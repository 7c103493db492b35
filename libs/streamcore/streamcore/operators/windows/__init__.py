"""Windows over one input: assignment, triggers, panes, late rows and revisions.

The package exists to compute the semantics of ``streamcore.windowing`` fast. It has two paths: ``sliced`` and
``sessions`` work in columns for windows that fire at their end; ``general`` evaluates triggers window by window for all
others. Both promise the panes of the reference, in an order that does not depend on the process. The package does not
know how rows are read or where panes go.
"""
