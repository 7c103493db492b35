"""Parts that every service shares around its topology: settings as one document, and a process that runs until stopped.

A service is a package with a settings model, a topology and four lines of ``__main__``.
"""
