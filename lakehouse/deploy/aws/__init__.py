"""The resources of a deployment in AWS."""
