"""Live views: a query repeated every second (``watch``), and the layout of its results (``views``).

Imports no other folder of the command line.
"""
