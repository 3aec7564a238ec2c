"""What `msprobe-client --format json` prints."""

import json


def rows(text):
    """Of a document; none where the command failed before it said anything."""
    return json.loads(text)["rows"] if text else []
