"""Catch-up and recovery: logs and tables read together. Imports all other rooms but ``storage.snapshot``."""
