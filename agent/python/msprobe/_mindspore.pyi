# The extension for MindSpore; agent/python/mindspore/module.cc says what it holds.
from typing import Any

def __getattr__(name: str) -> Any: ...
