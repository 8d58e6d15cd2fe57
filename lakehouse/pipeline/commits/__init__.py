"""The staged commit: the only code that stages, audits and publishes."""
