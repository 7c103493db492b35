"""``/api/v1``: typed answers for programs, as docs/reference/openapi.json describes them."""
