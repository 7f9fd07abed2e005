"""What a frame carries, by its encoding: checked, decoded, cut. Others import ``batch`` and nothing else of this.

Imports the rest of ``codec``, never the reverse.
"""
