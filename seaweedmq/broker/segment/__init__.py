"""Open segments on their primary and on their followers: append, replicate, write, fsync, commit. Imports
``broker.memory``.
"""
