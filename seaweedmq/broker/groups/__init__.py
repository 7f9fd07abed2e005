"""Consumer groups on the leader: coordinators, and the state of groups in etcd.

Imports no other subpackage of ``broker``.
"""
