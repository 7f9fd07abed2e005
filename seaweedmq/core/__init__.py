"""Pure decisions: events and time go in, actions come out.

The package uses no I/O, clock or randomness, and imports only the model and the errors.
"""
