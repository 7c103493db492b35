"""Text to typed tree: tokens, lexemes, grammar, types.

Promises: an expression is accepted with its types or refused with one error that holds line, column and a hint; work
is bounded by ``ExpressionLimits``. Knows nothing of rules, rows and Polars.
"""
