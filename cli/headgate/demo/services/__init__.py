"""The services that ``headgate up`` runs, each a value with what is different about it."""
