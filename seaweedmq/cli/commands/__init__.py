"""One module a command: what users type, and what they are told.
Imports the other rooms of the command line but the demo.
"""
