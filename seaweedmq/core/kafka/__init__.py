"""What a Kafka gateway decides: no clock, randomness, IO or network."""
