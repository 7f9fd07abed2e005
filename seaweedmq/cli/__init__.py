"""Command line of SeaweedMQ, the only package that assembles all others."""
