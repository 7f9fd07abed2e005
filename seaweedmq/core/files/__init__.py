"""Which files hold which offsets, and which may go. Imports no other room of the core."""
