"""The coordinator of a consumer group as a state machine, and how segments are shared out. Imports no other room of
the core.
"""
