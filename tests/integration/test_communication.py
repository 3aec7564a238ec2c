"""Calls between four real ranks: what is known of each, which do not fit together, and where the ranks hang."""

import inspect
import json
import os
import re
import signal
import sys

import pytest
import torch.distributed as dist
from harness.dumps import write_config
from harness.processes import PROGRAMS, external_server, launched, run, wait_until
from msprobe.pytorch._communication import _PARAMETERS, in_ranges
from msprobe_client import Client
from msprobe_client.model import Rank

PROGRAM = PROGRAMS / "communicating.py"
LINES = PROGRAM.read_text().splitlines()
RANKS = [Rank("rank", number) for number in range(4)]


def line_of(text):
    return next(number for number, line in enumerate(LINES, 1) if text in line)


def is_at(stack, text):
    return any(f"{PROGRAM}, line {line_of(text)}," in line for line in stack)


class Hanging:
    """The run while it hangs, and what a question said then."""

    def __init__(self, address, programs):
        self.address, self.programs = address, programs

    def ask(self, *arguments):
        command = [sys.executable, "-m", "msprobe_client", "--server", self.address, *arguments]
        done = run(command, check=False)
        return done.returncode, done.stdout

    def hang(self):
        with Client(self.address) as client:
            return client.hang("talk", least_seconds=1)


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    directory = tmp_path_factory.mktemp("talk")
    address = f"unix:{directory}/s"
    config = write_config(directory / "config.json", directory / "dump", server=address, run="talk")
    with (
        external_server(directory / "s", directory / "data", directory / "log"),
        launched(4, [sys.executable, PROGRAM, config], directory) as programs,
    ):
        for program in programs:
            program.wait_for(lambda program=program: "HANGS" in program.output, 180, "the program hangs")
        hanging = Hanging(address, programs)
        wait_until(lambda: sum(bool(each.waits_for) for each in hanging.hang().ranks) == 4, 30, "each rank waits")
        yield hanging


def test_a_record_says_what_its_call_was(hanging):
    with Client(hanging.address) as client:
        of_rank = {
            rank: {
                record.full_name: record.fields["communication"]
                for record in client.records("talk", step=0, rank=rank, name="Distributed.*")
            }
            for rank in (0, 3)
        }
    first = of_rank[0]["Distributed.all_reduce.0.forward"]
    assert (first["group"], first["ranks"], first["sequence"]) == ("0 default_pg", "0-3", 0)
    assert (first["bytes"], first["dtype"], first["shape"]) == (16, "torch.float32", [4])
    assert (first["reduce_op"], first["async"]) == ("SUM", False)
    pair = of_rank[3]["Distributed.all_reduce.1.forward"]
    assert (pair["ranks"], pair["sequence"], pair["async"], pair["shape"]) == ("1,3", 0, True, [2, 3])
    broadcast = of_rank[3]["Distributed.broadcast.0.forward"]
    assert (broadcast["root"], broadcast["sequence"]) == (1, 1)
    gather = of_rank[3]["Distributed.all_gather.0.forward"]
    assert (gather["bytes"], gather["shape"]) == (32, [2])
    (sent,) = of_rank[0]["Distributed.send.0.forward"]["messages"]
    (received,) = of_rank[3]["Distributed.recv.0.forward"]["messages"]
    assert (sent["sends"], sent["peer"], sent["tag"], sent["bytes"]) == (True, 3, 7, 20)
    assert (received["sends"], received["peer"], received["tag"], received["bytes"]) == (False, 0, 7, 20)
    ring = of_rank[3]["Distributed.batch_isend_irecv.0.forward"]["messages"]
    assert [(each["sends"], each["peer"]) for each in ring] == [(True, 0), (False, 2)]


def test_calls_that_fit_are_no_mismatch(hanging):
    assert hanging.ask("collectives", "talk", "--step", "0")[0] == 0


def test_what_a_rank_missed_is_named_by_both_lines(hanging):
    code, said = hanging.ask("collectives", "talk", "--format", "json")
    assert code == 1
    rows = json.loads(said)["rows"]
    assert [(row["step"], row["kind"]) for row in rows] == [(1, "missed"), (1, "extra"), (2, "differs")]
    missed, extra, differs = rows
    assert (missed["odd"], missed["others"]) == (["rank3"], ["rank0", "rank1", "rank2"])
    assert is_at(missed["of_others"]["stack"], "# missed") and is_at(missed["of_odd"]["stack"], "# everybody")
    assert is_at(extra["of_odd"]["stack"], "# one more")
    assert differs["differing"] == ["reduce_op"]
    assert (differs["of_odd"]["reduce_op"], differs["of_others"]["reduce_op"]) == ("MAX", "SUM")
    table = hanging.ask("collectives", "talk")[1]
    assert "first: step 1, group 0 default_pg: rank3 missed all_reduce SUM float32 [4], which rank0-2 called" in table


def explains(hang):
    assert hang.hangs and [each.rank for each in hang.ranks] == RANKS
    assert [each.waits_for for each in hang.ranks] == [(RANKS[3],)] * 3 + [(RANKS[2],)]
    assert {each.calls[0].operation for each in hang.ranks[:3]} == {"all_reduce"}
    assert all(is_at(each.calls[0].stack, "torch.ones(6)") for each in hang.ranks[:3])
    assert hang.ranks[3].calls[0].operation == "recv" and hang.ranks[3].calls[0].peer == 2
    assert is_at(hang.ranks[3].calls[0].stack, "# never sent")
    assert hang.cycle == (RANKS[2], RANKS[3])


def test_a_hang_is_explained_while_it_lasts_and_after_the_death(hanging):
    explains(hanging.hang())
    code, said = hanging.ask("hang", "talk", "--least", "3600")
    assert code == 0
    assert "no rank waits for another; 4 calls have stood for less than 3600 s: ask again, or with --least 1" in said
    code, said = hanging.ask("hang", "talk", "--least", "1")
    assert code == 1
    assert re.search(r"^rank3 .* recv from rank2 float32 \[2\] .* rank2$", said, re.MULTILINE), said
    assert "each waits for the next: rank2 -> rank3 -> rank2" in said
    assert "# never sent" in said
    for program in hanging.programs:  # so that none sees another one end first
        os.kill(program.process.pid, signal.SIGSTOP)
    for program in hanging.programs:
        program.kill()
    explains(hanging.hang())


@pytest.mark.parametrize("operation", sorted(_PARAMETERS))
def test_parameters_are_those_of_torch(operation):
    named = [*inspect.signature(getattr(dist, operation)).parameters]
    assert list(_PARAMETERS[operation]) == named[: len(_PARAMETERS[operation])]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([0, 1, 2, 3], "0-3"),
        ([0, 2, 4], "0-4:2"),
        ([1, 3], "1,3"),
        ([5], "5"),
        ([0, 1, 2, 3, 8, 10, 12, 14, 20], "0-3,8-14:2,20"),
        ([0, 7, 9], "0,7,9"),
    ],
)
def test_ranks_are_written_shortly(ranks, text):
    assert in_ranges(ranks) == text
