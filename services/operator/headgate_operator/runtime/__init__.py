"""The thin part: watches the API server, calls the reconciler, writes the status first, then acts."""
