"""The coordinator of a consumer group as a state machine, and the assignment of its segments.

Imports no other folder of the core.
"""
