"""Administration of the cluster (``admin``) with its topics, segments and groups, and group lag in seconds (``lag``).

Imports ``cluster``.
"""
