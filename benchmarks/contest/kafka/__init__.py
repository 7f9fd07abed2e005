"""Apache Kafka: one KRaft node, broker and controller at once, and confluent-kafka."""
