#!/usr/bin/env python3
"""Writes what deploy/ has twice: rules.yaml as a PrometheusRule, and the files that the Helm chart carries.

make_copies.py            write
make_copies.py --check    say which are not what this would write, and end with 1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parent
CHART = FOLDER / "helm" / "msprobe-server" / "files"
NOTE = "# Written by deploy/make_copies.py from deploy/prometheus/rules.yaml.\n"


def rule_resource() -> str:
    groups = yaml.safe_load((FOLDER / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "msprobe-server"},
        "spec": {"groups": groups},
    }
    return NOTE + yaml.safe_dump(resource, sort_keys=False, width=10_000)


def copies() -> dict[Path, str]:
    found = {FOLDER / "prometheus" / "prometheusrule.yaml": rule_resource()}
    for dashboard in sorted((FOLDER / "grafana").glob("*.json")):
        found[CHART / dashboard.name] = dashboard.read_text(encoding="utf-8")
    found[CHART / "rules.yaml"] = (FOLDER / "prometheus" / "rules.yaml").read_text(encoding="utf-8")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = 0
    for path, text in copies().items():
        if check and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            print(f"{path} is not what make_copies.py writes")
            stale += 1
        elif not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
