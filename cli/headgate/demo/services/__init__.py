"""The services that ``headgate up`` runs, each a value with the parts in which it differs from the others."""
