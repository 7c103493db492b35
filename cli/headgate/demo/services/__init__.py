"""The services that ``headgate up`` runs, one module for each (see ``headgate.demo.service``)."""
