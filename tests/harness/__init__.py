"""Shared parts of the suites that cross rooms: running traced programs, waiting on conditions, reading dumps."""
