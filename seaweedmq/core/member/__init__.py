"""What a member of a group has dealt with, what comes again, and what it commits. Imports no other room of the core."""
