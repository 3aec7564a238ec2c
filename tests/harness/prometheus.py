"""A real Prometheus that scrapes servers under test, and questions to it."""

import contextlib
import json
import time
import urllib.parse
import urllib.request

import yaml

from harness.processes import REPOSITORY, Background, free_port

# The variables of Grafana's panels.
VARIABLES = {"$__rate_interval": "20s", "$__interval": "5s", "$__range": "5m", "$run": ".*", "$rank": ".*"}


class Prometheus:
    def __init__(self, port):
        self._base = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path, **parameters):
        address = f"{self._base}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)["data"]

    def ready(self):
        try:
            return any(target["health"] == "up" for target in self.get("targets")["activeTargets"])
        except OSError:
            return False

    @staticmethod
    def _filled(expression):
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        return expression

    def ask(self, expression):
        """[(labels, value)] now."""
        rows = self.get("query", query=self._filled(expression))["result"]
        return [(row["metric"], float(row["value"][1])) for row in rows]

    def plot(self, expression, since):
        """[(labels, [value])] from then on, as a panel draws it."""
        when = {"start": since, "end": time.time(), "step": "1s"}
        rows = self.get("query_range", query=self._filled(expression), **when)["result"]
        return [(row["metric"], [float(value) for _, value in row["values"]]) for row in rows]

    def firing(self, name):
        alerts = self.get("alerts")["alerts"]
        return [a["labels"] for a in alerts if a["labels"]["alertname"] == name and a["state"] == "firing"]

    def fired(self, name):
        """The labels of an alert that fires or did."""
        rows = self.ask(f'last_over_time(ALERTS{{alertname="{name}", alertstate="firing"}}[1h])')
        return [labels for labels, _ in rows]


@contextlib.contextmanager
def scraping(program, directory, targets, rules):
    """Prometheus with deploy/'s configuration, but these rules and targets, all looked at each second: it has begun."""
    config = yaml.safe_load((REPOSITORY / "deploy" / "prometheus" / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(rules)]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = list(targets)
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    flags = [f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    command = [program, *flags, f"--web.listen-address=127.0.0.1:{port}"]
    with Background(command, directory / "prometheus.log") as process:
        seen = Prometheus(port)
        process.wait_for(seen.ready, 30, "Prometheus scrapes a server")
        yield seen
