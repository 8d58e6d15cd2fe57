"""Text for messages, terminals and Markdown."""
