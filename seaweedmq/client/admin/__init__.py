"""Administration of topics, groups and the cluster (``admin``), and group lag in seconds (``lag``).

Imports ``cluster``.
"""
