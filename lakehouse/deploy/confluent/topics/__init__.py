"""Topics in Confluent Cloud, and the connectors that fill some of them."""
