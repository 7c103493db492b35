"""Mapping stages: each computes the fields of rows with expressions, checks rules on them, and tells why a row failed.

``expressions`` reads the expressions of a settings document, ``problems`` collects what is wrong in it, ``stage`` runs
them on frames. Promises: the result of a row does not depend on other rows, and no data raises an exception. Does not
know the settings of a service, where rows come from and where they go.
"""
