"""Classic Kafka groups as state machines, and their committed offsets."""
