"""Recovery of a cluster's etcd from the storage alone: read what survived, plan, and write the plan.

``cluster.py`` has the one coroutine; ``topics.py`` and ``groups.py`` read the storage, and the decisions about lineages
are those of ``core.lineage.reconstruction``. Nothing here runs in a broker that serves.
"""
