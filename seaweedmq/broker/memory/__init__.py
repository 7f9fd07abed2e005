"""Memory budgets of a broker: large objects take memory from a budget first. Imports no other package of the broker."""
