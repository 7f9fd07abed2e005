"""Shards: state machines on the log of one partition, which the broker that leads the partition runs.

A shard loads the records of its partition, handles events, appends the records that they write, answers once these are
committed, and writes a snapshot from time to time. Ownership and fencing are those of the partition's segment.
``machine.py`` defines what a state machine brings; ``kafka/groups/`` runs Kafka's groups on it.
"""
