"""Values of the Kafka gateway."""
