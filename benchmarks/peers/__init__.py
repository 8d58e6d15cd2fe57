"""The contenders of against_peers.py, one a file: each makes one Kafka topic an Iceberg table and keeps up with it."""
