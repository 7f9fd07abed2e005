"""One open segment and its replicas: the log, duplicate detection, how it is sealed. Imports no other room of the
core.
"""
