"""Text to typed tree: tokens, lexemes, grammar, types.

Promises: an expression becomes a typed tree or raises one error with line, column and hint; ``ExpressionLimits`` bounds
the work.
"""
