"""What a member of a group holds, hands out, gets again and commits: ``dispatch`` and ``holdings``, made of the others.
Imports no other room of the core.
"""
