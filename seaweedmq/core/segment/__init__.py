"""One open segment and its replicas: its fate, its log, what is committed, duplicate detection, how it is sealed.
Imports no other room of the core.
"""
