"""Kafka's admin APIs: topics, their configs, and what lies in them."""
