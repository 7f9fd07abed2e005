"""Object stores: the adapter of ``ports.Objects`` for S3, Google Cloud Storage and Azure.

The extra ``seaweedmq[objects]`` brings ``obstore``, which speaks the protocols. Its own retries are off: it never
retries a create that timed out, retries one after a reset, and reports its own object as AlreadyExists. ``requests``
retries instead, by one rule for all requests.
"""
