"""The clouds: what is set up in them, and the credentials that are kept there."""
