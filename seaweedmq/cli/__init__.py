"""The command line: what users type, and the only place where all packages are put together."""
