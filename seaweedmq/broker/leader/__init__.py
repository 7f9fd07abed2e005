"""Duties of the leader: topics, placement, transitions, repair, balance.

Imports ``broker.groups``.
"""
