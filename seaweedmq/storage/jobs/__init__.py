"""Work on all tables of a topic, from its files alone: compaction, verification, rebuilding. Blocking; what is done to
a part of it can run anywhere that has the storage. Imports the other rooms of the storage.
"""
