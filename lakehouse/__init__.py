"""Any Kafka topic as a checked, fresh Apache Iceberg table."""
