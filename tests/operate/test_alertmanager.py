"""The server's alarms in a real Alertmanager."""

import contextlib
import datetime
import json
import sys
import urllib.request

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, Background, external_server, free_port, run, wait_until
from harness.receiver import Receiver

CONFIG = """\
route: {receiver: people, group_wait: 0s, group_interval: 1s, group_by: [run]}
receivers:
- name: people
  webhook_configs: [{url: "http://127.0.0.1:%d/"}]
"""


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@pytest.mark.timeout(180)
def test_an_alarm_reaches_people(tmp_path, alertmanager):
    port = free_port()
    with contextlib.ExitStack() as stack:
        people = stack.enter_context(Receiver())
        (tmp_path / "alertmanager.yaml").write_text(CONFIG % people.port)
        flags = [f"--config.file={tmp_path / 'alertmanager.yaml'}", f"--storage.path={tmp_path / 'am'}"]
        flags += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
        manager = stack.enter_context(Background([alertmanager, *flags], tmp_path / "alertmanager.log"))

        def alerts():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/alerts", timeout=10) as answer:
                    return json.load(answer)
            except OSError:
                return None

        manager.wait_for(lambda: alerts() == [], 60, "Alertmanager answers")
        flag = f"--alertmanager=http://127.0.0.1:{port}"
        stack.enter_context(external_server(tmp_path / "s", tmp_path / "data", tmp_path / "server.log", flag))
        config = write_config(
            tmp_path / "config.json",
            tmp_path / "dump",
            server=f"unix:{tmp_path}/s",
            run="ill",
            dump_enable=True,
            step=[3],
        )
        run([sys.executable, PROGRAMS / "monitored.py", "--config", config, "--nan", 17])

        def told():
            return [alert for alert in alerts() or [] if alert["labels"]["series"] == "loss"]

        (alert,) = wait_until(told, 60, "the alarm has come")
        labels = alert["labels"]
        assert (labels["alertname"], labels["run"], labels["rule"]) == ("not-finite", "ill", "not-finite")
        assert (labels["rank"], labels["kind"], labels["source"]) == ("rank0", "not_finite", "msprobe")
        assert alert["annotations"]["summary"] == "ill, rank0, step 17: loss: it is nan"
        assert alert["annotations"]["step"] == "17"
        assert 200 < seconds(alert["endsAt"]) - seconds(alert["startsAt"]) < 400, "it ends if the server falls silent"
        (post, *_) = wait_until(lambda: people.taken, 30, "Alertmanager tells people")
        assert json.loads(post.body)["alerts"][0]["labels"]["series"] == "loss"
