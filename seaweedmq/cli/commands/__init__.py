"""One module a command: what users type, and what they are told.
Imports the other folders of the command line but the demo.
"""
