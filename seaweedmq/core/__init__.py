"""Pure decisions: events and time go in, actions come out.

No IO, clock or randomness; an import contract keeps it so.
"""
