"""The thin shell: watches the API server, calls the reconciler, writes the status first, then acts."""
