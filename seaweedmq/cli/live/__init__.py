"""Live views: the same question again every second (``watch``), and what the answers look like (``views``).
Imports no other folder of the command line.
"""
