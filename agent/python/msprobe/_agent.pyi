# The extension; agent/python/module.cc says what it holds.
from typing import Any

def __getattr__(name: str) -> Any: ...
