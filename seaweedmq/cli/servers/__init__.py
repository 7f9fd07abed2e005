"""Long-running processes, a broker and a local cluster, with their signals, limits and logs.

Imports no other folder of the command line.
"""
