"""SeaweedMQ."""
