"""Jobs on all tables of a topic, from its files only, on any machine that has the storage. Blocking."""
