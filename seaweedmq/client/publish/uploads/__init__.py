"""Payloads by reference, from ``send_file`` to the record that refers to them.

``sources`` are the payloads: a file, a stream or a value. ``payload_upload`` sends one to a broker, part by part.
``uploader`` runs the uploads of a publisher. ``order`` keeps the order of each key while some of its records wait.
"""
