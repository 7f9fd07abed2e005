"""Values of etcd keys and the cluster's documents in the storage: bytes to values and back."""
