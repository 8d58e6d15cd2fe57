"""One batch from a topic to a published snapshot, and what repeats, proves or repairs it. No Dagster."""
