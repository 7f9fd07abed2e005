"""`make demo`: real flights through a local cluster and back, every record verified. Runs commands as users do."""
