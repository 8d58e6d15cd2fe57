"""Start, supervision and readiness of server processes."""
