"""Task free_benchmark for MindSpore."""
