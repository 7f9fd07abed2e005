"""Topics on the leader: creation, settings, deletion, schemas."""
