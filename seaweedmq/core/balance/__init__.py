"""When segments are split, merged and moved by load. Imports ``core.lineage``."""
