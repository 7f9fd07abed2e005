"""Recovery of a cluster's etcd from the storage alone: read the storage, plan, and write the plan.

``cluster.py`` has the entry point, which makes a ``plan.py``. ``topics.py`` and ``groups.py`` read the storage, and
``core.lineage.reconstruction`` reconstructs lineages. ``application.py`` writes a plan once ``registrations.py`` finds
no broker. This package never runs in a serving broker.
"""
