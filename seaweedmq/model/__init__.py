"""Frozen values: what the cluster is made of. No IO, no clock, no third-party types but the key hash."""
