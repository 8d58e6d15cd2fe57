"""API keys of Confluent Cloud, the secrets that hold them, and their rotation."""
