"""Frozen values: the parts of a cluster and the messages between them.

No IO, no clock; imports errors only.
"""
