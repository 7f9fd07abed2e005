"""Conversion of bytes to values and back: frames, log files, file names, schemas, metadata keys and values.

Pure, one module per format. Imports only the model and the errors.
"""
