"""Recovery of a cluster's etcd from the storage alone: read what survived, plan, and write the plan.

``cluster.py`` has the one coroutine, which makes a ``plan.py``; ``topics.py`` and ``groups.py`` read the storage, and
``core.lineage.reconstruction`` decides about lineages. ``application.py`` writes a plan once ``registrations.py`` finds
no broker. Nothing here runs in a broker that serves.
"""
