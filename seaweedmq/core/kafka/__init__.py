"""Decisions of a Kafka gateway: no clock, randomness, IO or network."""
