"""Values of etcd keys and the cluster's documents in the storage: bytes to values and back.

Every reader raises Corrupt for unreadable bytes, and Unsupported for those of a later version of SeaweedMQ.
"""
