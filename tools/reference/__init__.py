"""The pages of docs/reference and docs/cookbook, each generated from what declares the things that the page lists.

Promises that a page is a pure function of the code and of the rules in ``examples/cookbook``, so one that differs is
stale, and that nothing is listed twice: a page finds its entries where the product declares them. A module for each
page has the function ``page``. ``python -m tools.reference`` writes the pages; ``--check`` names those that are stale.
"""
