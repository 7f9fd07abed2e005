"""Pure decisions: events and time go in, actions come out.

No IO, clock or randomness; imports only the model and the errors.
"""
