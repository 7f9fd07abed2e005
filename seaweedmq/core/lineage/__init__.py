"""The rules for a topic's segments: creation, transitions, placement, repair, pruning, and the order of reading.

Imports no sibling package of ``core``.
"""
