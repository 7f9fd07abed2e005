"""Demo of `make demo`: real flights through a local cluster and back, every record verified.

It runs commands as users do.
"""
