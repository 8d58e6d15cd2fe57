"""Protection of the embedded stack's HTTP servers."""
