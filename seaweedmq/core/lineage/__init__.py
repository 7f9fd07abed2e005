"""Which segments there are and what comes after them: creation, succession, reshaping, placement, repair, pruning.
Imports no other room of the core.
"""
