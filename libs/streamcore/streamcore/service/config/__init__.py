"""Settings documents: the files that configure a service, as pydantic models with described fields.

A document is complete and valid before anything starts, and every mistake is reported with its path. JSON Schemas,
chart values and reference pages are generated from these models.
"""
