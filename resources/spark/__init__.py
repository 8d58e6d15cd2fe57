"""The client of Spark Connect."""
