"""Processes that stay: a broker, a local cluster, what each does about signals, limits and its log.
Imports no other folder of the command line.
"""
