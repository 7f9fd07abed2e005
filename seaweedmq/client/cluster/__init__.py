"""The client's view of the cluster: whom to ask, and what was said last. Imports only settings of the client."""
