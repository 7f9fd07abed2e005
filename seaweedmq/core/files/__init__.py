"""The rules for files: which offsets each one holds, and when it is converted, merged or deleted.

Imports no sibling package of ``core``.
"""
