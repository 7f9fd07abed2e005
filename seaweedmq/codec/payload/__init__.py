"""Payloads of frames, by encoding: validation, decoding and clipping. Other packages import only ``batch``.

Imports the rest of ``codec``, never the reverse.
"""
