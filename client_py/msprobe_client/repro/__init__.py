"""One recorded call as a script that needs torch alone, with its tensors beside it. docs/repro.md shows one."""
