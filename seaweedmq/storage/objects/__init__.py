"""Object stores: the adapter of ``ports.Objects`` for S3, Google Cloud Storage and Azure.

The extra ``seaweedmq[objects]`` brings ``obstore``, which speaks the protocols. Its own repetitions are off: it never
repeats a create that timed out, repeats one after a reset, and reports its own object as AlreadyExists. ``requests``
repeats instead, by one rule for all requests.
"""
