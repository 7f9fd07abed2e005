"""Records of open segments in an object store: one sequence of bundles for each broker, and log objects.

It takes the place of log files and fsyncs, see ``broker.segment``, where the storage is an object store. The rules are
in ``core.segment``: ``bundling``, ``bundle_puts``, ``bundle_ledger``.
"""
