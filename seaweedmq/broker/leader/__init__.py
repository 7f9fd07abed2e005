"""What the leader does: topics, placement, succession, repair, balance. Imports ``broker.groups``."""
