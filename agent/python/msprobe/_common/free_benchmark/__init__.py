"""Task free_benchmark: each selected API call runs a second time, otherwise, and the two results are compared.

The part that is every framework's.
"""
