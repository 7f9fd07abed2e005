"""The state machines of a group member: held segments, delivery, redelivery and commits of its records.

``record_dispatch`` and ``holdings`` combine the others. Imports no sibling package of ``core``.
"""
