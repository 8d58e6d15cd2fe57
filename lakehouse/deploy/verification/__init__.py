"""The verification of a created deployment, by the calls that the running lakehouse makes."""
