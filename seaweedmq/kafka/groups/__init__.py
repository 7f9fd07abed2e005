"""Kafka groups: classic members, committed offsets, FindCoordinator, and the admin APIs of groups."""
