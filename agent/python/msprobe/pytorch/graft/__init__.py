"""Graft: the outputs of chosen modules are others than the modules gave, and bisecting by it."""
