"""The metadata store: etcd or memory; leases, election, and the live view of it all. Knows no brokers' insides and no
files.
"""
