"""Open segments on their primary and on their followers: append, replicate, write, flush, commit.

Imports ``broker.memory``.
"""
