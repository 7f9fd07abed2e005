"""Records on their way into frames: arguments, batches, rows and tables."""
