"""Protobuf messages of each service to values of ``model`` and back."""
