"""What a broker does on the side: files behind the stream, load reports. Imports ``broker.segment`` and
``broker.memory``.
"""
