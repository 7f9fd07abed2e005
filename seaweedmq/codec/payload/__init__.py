"""What a frame carries, by its encoding: checked, decoded, cut. Imports the rest of ``codec``, never the reverse."""
