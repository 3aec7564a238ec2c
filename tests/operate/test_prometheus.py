"""Rules and dashboards against a real Prometheus that scrapes a real server fed by a real run with a planted NaN."""

import json
import math
import re
import sys
import time

import pytest
import yaml
from harness import answers
from harness.certificates import Authority
from harness.dumps import write_config
from harness.processes import Background, external_server, free_port, run, wait_until
from harness.prometheus import scraping
from operate_checks import output_of

RUN = "planted"
STEPS, NAN_AT = 40, 10
# Panels that show ranks or rates while a session is open and steps come.
WITHIN_S = 90


def test_rules_do_what_their_tests_say(deploy, promtool):
    folder = deploy / "prometheus"
    output_of(promtool, "check", "rules", folder / "rules.yaml")
    output_of(promtool, "check", "config", folder / "prometheus.yaml")
    output_of(promtool, "test", "rules", "rules_test.yaml", cwd=folder)


def test_every_alert_is_tested_and_says_what_to_do(deploy):
    rules = yaml.safe_load((deploy / "prometheus" / "rules.yaml").read_text())
    tested = set(re.findall(r"alertname: (\w+)", (deploy / "prometheus" / "rules_test.yaml").read_text()))
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    assert {alert["alert"] for alert in alerts} == tested
    for alert in alerts:
        assert alert["labels"]["severity"] in ("page", "warning")
        assert alert["annotations"]["summary"] and alert["annotations"]["description"]


def test_generated_files_are_current(deploy):
    output_of(sys.executable, deploy / "grafana" / "make_dashboards.py", "--check")
    output_of(sys.executable, deploy / "make_copies.py", "--check")


def panels(deploy):
    for path in sorted((deploy / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']} ({target['refId']})", target["expr"]


def variable_queries(deploy):
    for path in sorted((deploy / "grafana").glob("*.json")):
        for variable in json.loads(path.read_text())["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{path.stem}: ${variable['name']}", variable["query"]


def test_no_dashboard_asks_for_a_metric_that_is_not_there(deploy):
    known = set(re.findall(r"`(msprobe_\w+)`", (deploy.parent / "docs" / "metrics.md").read_text()))
    known |= {f"{name}_bucket" for name in known}
    for title, expression in panels(deploy):
        for name in re.findall(r"\bmsprobe_\w+", expression):
            assert name in known, f"{title} asks for {name}"


def test_numbers_have_limits_that_colour_them(deploy):
    """Lines that belong to one alert must also be there."""
    for path in sorted((deploy / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            steps = panel.get("fieldConfig", {}).get("defaults", {}).get("thresholds", {}).get("steps", [])
            if panel["type"] == "stat":
                assert steps and steps[0].get("value") is None, panel["title"]
    drawn = {
        panel["title"]: [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]
        for panel in json.loads((deploy / "grafana" / "ingest.json").read_text())["panels"]
        if "thresholds" in panel["fieldConfig"]["defaults"]
    }
    assert drawn["Acknowledgement"] == [1, 5] and drawn["Lag of ranks"] == [1800]
    assert drawn["Waiting with agents"] == [256 << 20] and drawn["Certificates"] == [2 * 86400, 14 * 86400]


@pytest.mark.timeout(240)
def test_panels_have_data_and_the_alert_fires(tmp_path, short_directory, deploy, prometheus, programs, client):
    metrics = free_port()
    address, go = f"unix:{short_directory / 's.sock'}", tmp_path / "go"
    cert, key = Authority(tmp_path / "authority").sign("server")
    flags = (
        f"--metrics_listen=127.0.0.1:{metrics}",
        "--watch=loss=Functional.cross_entropy.*.forward.output.0:max",
        f"--tls_cert={cert}",
        f"--tls_key={key}",
    )
    run_config = write_config(tmp_path / "run.json", tmp_path / "dump", level="mix", server=address, run=RUN)
    arguments = ("--steps", STEPS, "--nan-at", NAN_AT, "--pace", "0.5", "--go", go)
    with (
        external_server(short_directory / "s.sock", tmp_path / "data", tmp_path / "server.log", *flags),
        scraping(prometheus, tmp_path, [f"127.0.0.1:{metrics}"], deploy / "prometheus" / "rules.yaml") as seen,
    ):
        assert not seen.firing("MsprobeNaN")
        began = time.time()
        program = [sys.executable, programs / "overflowing.py", "--config", run_config, *map(str, arguments)]
        with Background(program, tmp_path / "program.log") as traced:
            firing = traced.wait_for(lambda: seen.firing("MsprobeNaN"), WITHIN_S, "the alert of NaN fires")
            assert {(a["run"], a["rank"], a["module_group"], a["severity"]) for a in firing} >= {
                (RUN, firing[0]["rank"], "layers.*", "page")
            }

            without, plotted = dict(panels(deploy)), {}

            def all_have_data():
                for title, expression in list(without.items()):
                    rows = seen.plot(expression, began)
                    if any(not math.isnan(value) for _, values in rows for value in values):
                        plotted[title] = rows
                        del without[title]
                return not without

            try:
                traced.wait_for(all_have_data, WITHIN_S, "every panel's query returns data")
            except AssertionError as error:
                raise AssertionError(f"no data: {sorted(without)}") from error
            for title, query in variable_queries(deploy):
                matcher = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
                found = {labels.get(matcher[2]) for labels, _ in seen.ask(matcher[1])}
                assert found - {None}, title

            ((labels, steps),) = plotted["overflow: First producer of each rank (A)"]
            assert (labels["run"], labels["module_group"], labels["kind"], labels["origin"], steps[-1]) == (
                RUN,
                "layers.*",
                "nan",
                "computation",
                NAN_AT,
            )
            assert plotted["overflow: NaN producers (A)"][0][1][-1] >= 1
            ((labels, losses),) = plotted["training: Watched statistics (A)"]
            assert (
                labels["watch"] == "loss" and 0 < losses[0] < 10 and math.isnan(seen.ask("msprobe_watched_value")[0][1])
            )
            # The dashboard's counts are those of the command line.
            listed = run([client, "--server", address, "--format", "json", "overflow", RUN], check=False)
            assert listed.returncode == 1, "something was found"
            first = answers.rows(listed.stdout)[0]
            assert (first["step"], first["op"], first["module"]) == (NAN_AT, "Torch.log.0.forward", "layers.2")
            go.touch()
            traced.finish(60)
        wait_until(lambda: not seen.ask("msprobe_last_complete_step"), 60, "the rank is no longer shown as running")
