"""The metadata store: etcd or memory; leases, election, and a live view of the metadata.

Imports no internals of brokers, and no files.
"""
