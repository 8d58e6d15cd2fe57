"""One module for each system: its client, its credentials, and the calls of this project."""
