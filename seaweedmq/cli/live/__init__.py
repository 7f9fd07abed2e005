"""Live views: the same question again every second. Imports no other room of the command line."""
