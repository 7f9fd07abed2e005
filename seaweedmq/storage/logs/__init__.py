"""Log files as bytes: scanned frame by frame, told apart from damage. Imports no other room of the storage."""
