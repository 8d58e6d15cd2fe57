"""One module a system: its client, its credentials, the few questions this project asks of it."""
