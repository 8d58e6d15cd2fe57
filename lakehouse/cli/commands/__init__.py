"""The commands of `lakehouse`, each a thin caller of what the assets call."""
