"""Topics, groups and the cluster, for programs. Imports ``client.cluster``."""
