"""Constructs a debugger for each configuration in a JSON list and prints, as JSON, the exception of each, or null.

Input: [{"name": ..., "config": {...} or null, "text": raw file text or absent, "arguments": {...}}]
"""

import json
import pathlib
import sys
import tempfile


def main():
    from msprobe.pytorch import PrecisionDebugger

    results = {}
    for case in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as stream:
            stream.write(case.get("text") or json.dumps(case["config"]))
            stream.flush()
            try:
                PrecisionDebugger(config_path=stream.name, **case.get("arguments", {}))
                results[case["name"]] = None
                print("NOT REFUSED", case["name"], file=sys.stderr)
                break  # a singleton: what follows would not be read
            except Exception as error:  # whatever it is, the test reads it
                results[case["name"]] = f"{type(error).__name__}: {error}"
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
