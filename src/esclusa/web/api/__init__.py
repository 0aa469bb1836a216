"""The HTTP API: routes, their schemas, and the OpenAPI document."""
