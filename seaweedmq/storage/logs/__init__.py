"""Scan of log files frame by frame, and distinction of torn tails from damage."""
