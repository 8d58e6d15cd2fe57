"""Images that are built and started without a container engine."""
