"""A deployment's things in one AWS account and region, a kind in each file."""
