"""The pages of docs/reference, each generated from the code that declares what the page lists.

Promises that a page is a pure function of the code, so a page that differs from the code is stale, and that nothing is
listed twice: a page finds its entries where the product declares them. A module for each page has the function
``page``. ``python -m tools.reference`` writes the pages; with ``--check`` it names those that are stale.
"""
