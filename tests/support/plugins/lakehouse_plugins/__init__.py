"""One implementation of each extension point, found by entry points."""
