"""Topics, groups and the cluster, for programs; how far a group is behind (``lag``). Imports ``cluster``."""
