"""Consumer groups on the leader: coordinators and what etcd keeps of them. Imports no other room of the broker."""
