"""Tableflow's tables and the catalogs in which they are registered."""
