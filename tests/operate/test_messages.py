"""docs/troubleshooting.md has every message of the programs, and every line that the programs print is on it."""

import json
import pathlib
import re
import sys

import pytest
from harness.processes import REPOSITORY, run

sys.path.insert(0, str(REPOSITORY / "scripts"))
from cpp_messages import messages_of_cpp
from find_messages import GAP, PAGE, Message, messages, messages_of_python, on_the_page, written


@pytest.fixture(scope="module")
def listed():
    return on_the_page(PAGE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found():
    return messages()


def test_every_message_is_on_the_page(listed, found):
    known = set(listed)
    missing = [f"{message.place}: {message.text}" for message in found if message.text not in known]
    assert not missing, "run scripts/find_messages.py --write, and see where it puts these:\n" + "\n".join(missing)


def test_the_page_has_no_message_that_is_gone(listed, found):
    known = {message.text for message in found}
    gone = [line for line in listed if line not in known]
    assert not gone, "run scripts/find_messages.py --write, which removes these:\n" + "\n".join(gone)


def test_the_lists_of_the_page_are_as_generated(found):
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, found) == page, "run scripts/find_messages.py --write"


def test_a_new_message_comes_beside_those_of_its_file_and_an_old_one_goes():
    page = "one\n```text\nb\ngone\n```\ntwo\n```text\nz\n```\n"
    found = [Message("b", "server/b.cc:1"), Message("… a", "server/b.cc:2"), Message("z", "agent/z.cc:1")]
    assert written(page, found) == "one\n```text\n… a\nb\n```\ntwo\n```text\nz\n```\n"
    assert written(page, [*found, Message("y", "agent/y.cc:1")]).endswith("two\n```text\ny\nz\n```\n")


def test_each_entry_says_what_to_do_and_each_message_stands_once(listed):
    text = PAGE.read_text(encoding="utf-8")
    for entry in text.split("\n### ")[1:]:
        title, _, rest = entry.partition("\n")
        prose, _, block = rest.partition("```text\n")
        assert len(prose.split()) > 10, f"{title}: no word on its cause"
        assert on_the_page("```text\n" + block), f"{title}: no message"
    assert len(listed) == len(set(listed)), "a message stands in two entries"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('return absl::NotFoundError(Cat("no run ", name, " here"));', ["no run … here"]),
        ('return absl::DataLossError("one "\n  "two");', ["one two"]),
        ('LogWarning("{} is {:x}", a, b);  // LogError("not this")', ["… is …"]),
        (
            'return grpc::Status(grpc::StatusCode::ABORTED, ended ? "it ended" : "it goes on");',
            ["it ended", "it goes on"],
        ),
        ('return absl::InternalError(absl::StrFormat("%016x of 100%%", id));', ["… of 100…"]),
        (
            'absl::Status Damaged(std::string_view what) { return absl::DataLossError(Cat("damaged: ", what)); }\n'
            'absl::Status F() { return Damaged("cut off"); }\nabsl::Status G() { return Damaged(Cat(n, " bytes")); }',
            ["damaged: cut off", "damaged: … bytes"],
        ),
        ('constexpr char kRule[] = "a file";\nabsl::Status F() { return absl::NotFoundError(kRule); }', ["a file"]),
        ('return absl::OkStatus(); Info("not this"); Field("nor this"); F(absl::CancelledError("enough"));', []),
    ],
)
def test_messages_are_found_in_cpp(source, found):
    assert [text for text, _ in messages_of_cpp(source)] == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise NotFound(f"no run {name}; there is " + f"{other}")', ["no run …; there is …"]),
        ('text = "it is full"\n_log.warning(text)', ["it is full"]),
        ('rule = "two integers"\nraise MsprobeError(f"range is {given}; it should be {rule}")', None),
        ('print("gone", file=sys.stderr)\nprint("not this")', ["gone"]),
        ('fail(command, "nothing there" if empty else f"{path} is lost", 3)', ["nothing there", "… is lost"]),
    ],
)
def test_messages_are_found_in_python(source, found):
    found = ["range is …; it should be two integers"] if found is None else found
    assert [text for text, _ in messages_of_python(source)] == found


def _is_listed(line, listed):
    """Whether a line matches a message of the page with more than two words."""
    line = line.removeprefix("msprobe-server: ") if "unexpected argument" not in line else line
    return any(
        re.fullmatch(".+?".join(map(re.escape, text.split(GAP))), line) for text in listed if len(text.split()) > 2
    )


def test_what_the_programs_say_is_on_the_page(tmp_path, listed, client, server_binary):
    (tmp_path / "empty").mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "level": "L9"}))
    (tmp_path / "agent.py").write_text(
        "from msprobe.pytorch import PrecisionDebugger\n"
        "try:\n    PrecisionDebugger('config.json')\nexcept Exception as error:\n    print(error)\n"
    )
    asked = [
        [server_binary, f"--data_dir={tmp_path}/data", "--listen=127.0.0.1:x"],
        [server_binary, "--listen=127.0.0.1:0"],
        [server_binary, f"--data_dir={tmp_path}/data", "--listen=0.0.0.0:0"],
        [server_binary, f"--data_dir={tmp_path}/data", f"--config={tmp_path}/none.conf"],
        [server_binary, f"--data_dir={tmp_path}/data", "stray"],
        [client, "--server", "127.0.0.1:1", "runs"],
        [client, "--server", "nowhere", "runs"],
        [client, "--data_dir", f"{tmp_path}/none", "runs"],
        [client, "compare", f"{tmp_path}/empty", f"{tmp_path}/empty"],
        [pathlib.Path(client).with_name("msprobe"), "overflow_check", "-i", f"{tmp_path}/none"],
        [sys.executable, "agent.py"],
    ]
    for command in asked:
        said = run(command, cwd=tmp_path, check=False)
        lines = [*said.stderr.splitlines(), *(said.stdout.splitlines() if command[-1] == "agent.py" else [])]
        text = re.sub(r"^(msprobe(-client|) ?\w*: |Error: Invalid value for \S+: )", "", lines[-1])
        of_a_file = re.sub(r"^/\S+: ", "", text)  # the path of the file or directory stands in front
        assert _is_listed(text, listed) or _is_listed(of_a_file, listed), f"{command}: {lines}"
