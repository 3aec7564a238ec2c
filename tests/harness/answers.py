"""The output of `msprobe-client --format json`."""

import json


def rows(text):
    """The rows of a document; none if the command failed before it printed anything."""
    return json.loads(text)["rows"] if text else []
