"""Frozen values: what the cluster is made of, and what its parts say to each other. No IO, no clock; imports errors
only.
"""
