"""IAM roles and policies of a deployment."""
