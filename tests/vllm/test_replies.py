"""The server judges replies while vLLM writes them (judge_replies)."""

import json
import pathlib
import re
import urllib.request

import pytest
from harness import answers
from harness.dumps import exported_steps
from harness.processes import Background, external_server, find_binary, free_port, run, wait_until
from harness.vllm import ENVIRONMENT

PROGRAMS = pathlib.Path(__file__).with_name("programs")


@pytest.fixture(scope="module")
def looping_model(vllm_environment, tmp_path_factory):
    directory = tmp_path_factory.mktemp("looping")
    run([vllm_environment / "bin" / "python", PROGRAMS / "looping_model.py", directory], timeout=400)
    return directory


@pytest.mark.timeout(900)
def test_a_loop_raises_the_alarm_before_the_reply_ends(tmp_path, vllm_environment, looping_model):
    socket, port, go = tmp_path / "s", free_port(), tmp_path / "go"
    config = tmp_path / "config.json"
    content = {"task": "statistics", "dump_path": str(tmp_path / "dump"), "dump_enable": False}
    config.write_text(json.dumps({**content, "server": f"unix:{socket}", "run": "chat"}))

    def alarms():
        command = [find_binary("msprobe-client"), "--server", f"unix:{socket}", "alarms", "chat", "--format", "json"]
        done = run(command, check=False)
        assert done.returncode in (0, 1), done.stderr
        return answers.rows(done.stdout)

    program = [vllm_environment / "bin" / "python", PROGRAMS / "replies.py", looping_model, config, go]
    flags = ("--metrics_listen", f"127.0.0.1:{port}")
    with external_server(socket, tmp_path / "data", tmp_path / "server.log", *flags):
        with Background(program, tmp_path / "vllm.log", **ENVIRONMENT) as vllm:
            vllm.wait_for(lambda: "PAUSED" in vllm.output, 400, "300 tokens are written")
            (alarm,) = wait_until(alarms, 30, "the alarm, while the replies are not done")
            assert alarm["kind"] == "ill_response" and re.fullmatch("response/.*loop.*", alarm["series"])
            assert alarm["step"] == 255 and "it repeats itself: of the 3-grams of tokens 128 to 255" in alarm["why"]
            go.touch()
            vllm.finish(300)
        (same,) = alarms()
        assert same["offences"] == 1 and not same["others"], "no other reply is an offence, and this one is told once"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            metrics = answer.read().decode()
        counted = dict(re.findall(r"^(msprobe_(?:ill_responses|response_tokens)_total\{.*\}) (\d+)", metrics, re.M))
        assert counted == {
            'msprobe_ill_responses_total{kind="repeat",run="chat"}': "1",
            'msprobe_response_tokens_total{kind="judged",run="chat"}': "800",
            'msprobe_response_tokens_total{kind="tokens_alone",run="chat"}': "400",
        }
    assert not exported_steps(tmp_path / "dump"), "no step is captured"
