"""Resources of this process: ports, descriptors, memory, forks, clocks."""
