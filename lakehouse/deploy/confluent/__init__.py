"""The steps of a deployment in Confluent Cloud, by plane."""
