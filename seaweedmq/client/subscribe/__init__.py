"""A record's way in: one reader a segment, taken in turn, handed out as messages or batches. Imports
``client.cluster``.
"""
