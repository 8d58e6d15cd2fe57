"""Names, layouts and columns of tables."""
