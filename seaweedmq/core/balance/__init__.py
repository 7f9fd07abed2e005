"""The load balancer: decisions to split, merge and move segments. Imports ``core.lineage``."""
