"""A member of a consumer group: what it reads, hands out, commits and gives back. Imports ``publish`` (dead letters)
and ``subscribe``.
"""
