"""Settings documents: files that people write to configure a service, as pydantic models with described fields.

Promises: a document is complete and valid before anything starts, and every mistake is reported with its path. JSON
Schemas, chart values and reference pages come from these models. Knows nothing of a running service.
"""
