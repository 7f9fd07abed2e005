"""Commands of the command line, one module each.

Imports the other folders of the command line except the demo.
"""
