"""Generated from proto/msprobe/v1 by generate_proto.py."""
