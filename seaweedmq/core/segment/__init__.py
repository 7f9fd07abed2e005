"""The state machines of one open segment and its replicas: lifecycle, log, commit rule, duplicate detection, sealing.

Imports no sibling package of ``core``.
"""
