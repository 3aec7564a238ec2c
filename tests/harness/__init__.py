"""What the suites that cross rooms share: running traced programs, waiting on conditions, reading dumps."""
