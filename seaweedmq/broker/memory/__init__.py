"""Everything of size is taken from a budget before it is held. Imports no other room of the broker."""
