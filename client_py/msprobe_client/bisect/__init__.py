"""Which modules are at fault: runs of a program, each with some modules repaired, until the smallest set is known."""
