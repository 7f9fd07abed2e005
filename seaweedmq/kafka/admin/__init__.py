"""Kafka's admin APIs: topics, configs, and the files and producers of partitions."""
