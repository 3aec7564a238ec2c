"""Whether operators compute what they should: each recorded call again, on a device and in float64.

torch is that of the caller's environment, and only the modules that run calls import it.
Contents of tensors come from the server as bytes; nothing is unpickled.
"""
