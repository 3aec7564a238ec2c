"""Three servers as shards, with real agents' transport, and their answers while one is gone."""

import collections
import json
import subprocess

import pytest
from harness import answers
from harness.cluster import Cluster
from harness.processes import REPOSITORY, Background, environment, external_server, find_binary, run, wait_until

GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
FAILED = 3  # exit codes of msprobe-client
RANKS = 30  # which server a rank is bound to depends on the random addresses: with 30, each of three has some
STEPS = 3
RECORDS = 25


@pytest.fixture
def cluster(tmp_path, short_directory):
    (tmp_path / "data").mkdir()
    with Cluster(short_directory, tmp_path / "data") as three:
        yield three


def load(reference, server, *flags, ranks=RANKS, steps=STEPS, run_name="load"):
    dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
    return [
        str(GENERATOR),
        f"--server={server}",
        f"--dump={dump}",
        f"--run={run_name}",
        f"--ranks={ranks}",
        f"--steps={steps}",
        f"--records={RECORDS}",
        "--seconds=60",
        "--memory_mb=4",
        *flags,
    ]


def asked(client, server, *command):
    """Rows, exit code, and the lines on stderr."""
    done = run([client, "--server", server, "--format", "json", *command], check=False)
    return answers.rows(done.stdout), done.returncode, done.stderr


def ranks_of(rows):
    return {row["rank"] for row in rows}


def held_by(client, cluster, i, run_name="load"):
    """Ranks in one server's own data directory, as another server on it would list them."""
    log = cluster.log(i)
    return {line.split("(")[1].split(",")[0] for line in log.splitlines() if f" of run {run_name} (" in line}


@pytest.mark.timeout(180)
def test_every_server_gives_the_same_answers(cluster, tmp_path, client, reference):
    assert GENERATOR.exists(), f"{GENERATOR} is not built: run `make build`, then `ninja -C build`"
    spool = tmp_path / "spool"
    done = run(load(reference, ",".join(cluster.addresses), f"--spool={spool}"))
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["undrained_ranks"], counts["fragments_dropped"], counts["faults"]) == (0, 0, 0), done.stderr
    run(load(reference, cluster.addresses[1], f"--spool={spool}", run_name="other", ranks=4, steps=1))

    held = [held_by(client, cluster, i) for i in range(3)]
    assert all(held), f"no rank lies on one of the servers: {held}"
    assert sum(map(len, held)) == RANKS, f"a rank lies on two of them: {held}"

    name = "Functional.*.forward.output.0"
    questions = {
        "runs": ["runs"],
        "steps": ["steps", "load"],
        "records": ["records", "load", "--step", "1", "--rank", "7"],
        "find": ["find", "load", "--name", "Module.*", "--limit", "40"],
        "overflow": ["overflow", "load"],
        "trend": ["trend", "load", name],
        "compare": ["compare", "load", "other", "--all"],
        "first-divergence": ["first-divergence", "load", "other"],
        "info": ["server", "info"],
    }
    found = {}
    for what, question in questions.items():
        every = [asked(client, server, *question) for server in cluster.addresses]
        rows, code, said = every[0]
        assert code in (0, 1) and "incomplete" not in said, (what, every)
        # The generator's runs have the same numbers, none of which is out of range.
        assert rows or what in ("overflow", "first-divergence"), what
        if what == "info":
            for answer in every:
                assert answer[0][0]["shards"] == sorted(cluster.addresses)
            continue
        for other in every[1:]:
            assert other[:2] == (rows, code), what
        found[what] = rows
    assert len(found["steps"]) == RANKS * STEPS
    assert {(row["state"].lower(), row["records"]) for row in found["steps"]} == {("complete", RECORDS)}
    listed = {row["run"]: row for row in found["runs"]}
    assert (listed["load"]["steps"], listed["load"]["records"]) == (STEPS, RANKS * STEPS * RECORDS)

    exported = []
    for i, server in enumerate(cluster.addresses):
        directory = tmp_path / f"export{i}"
        run([client, "--server", server, "export", "load", "-o", directory])
        files = {path.relative_to(directory): path for path in directory.rglob("*") if path.is_file()}
        exported.append({name: path.read_bytes().replace(bytes(directory), b"") for name, path in files.items()})
    assert len({str(name.parent.parent if "dump_tensor" in str(name) else name.parent) for name in exported[0]}) == (
        RANKS * STEPS
    )
    assert exported[0] == exported[1] == exported[2]

    run([client, "--server", cluster.addresses[0], "server", "pin", "load"])
    for server in cluster.addresses:
        assert {row["run"]: row["pinned"] for row in asked(client, server, "runs")[0]}["load"]
    run([client, "--server", cluster.addresses[2], "delete", "load", "--yes"])
    for server in cluster.addresses:
        assert [row["run"] for row in asked(client, server, "runs")[0]] == ["other"]


@pytest.mark.timeout(180)
def test_processes_are_asked_through_any_server(cluster, tmp_path, client, reference):
    """Each process sends to one server only; the asker need not know which."""
    command = load(reference, ",".join(cluster.addresses), f"--spool={tmp_path / 'spool'}", "--rate=2000", steps=10000)
    with Background(command, tmp_path / "load.log"):
        every = {f"rank{rank}" for rank in range(RANKS)}
        wait_until(lambda: set().union(*(held_by(client, cluster, i) for i in range(3))) == every, 60, "all ranks")
        for server in cluster.addresses:
            rows, code, said = asked(client, server, "control", "load", "status")
            assert code == 0 and "incomplete" not in said, said
            assert [row["rank"] for row in rows] == sorted(every, key=lambda rank: int(rank[4:]))
            assert {row["answer"] for row in rows} == {"obeyed"}
        wanted = sorted(held_by(client, cluster, 1), key=lambda rank: int(rank[4:]))[0]
        rows, code, said = asked(client, cluster.addresses[0], "control", "load", "status", "--rank", wanted[4:])
        assert (ranks_of(rows), code) == ({wanted}, 0), said

        lost = held_by(client, cluster, 2)
        cluster.kill(2)
        rows, code, said = asked(client, cluster.addresses[0], "control", "load", "status")
        assert (ranks_of(rows), code) == (every - lost, FAILED), said
        assert cluster.addresses[2] in said


@pytest.mark.timeout(120)
def test_contents_come_from_the_server_that_has_them(cluster, tmp_path, client, reference):
    dump = reference / "compare" / "tensor_perturb"
    run([client, "--server", cluster.addresses[0], "import", dump, "--run", "imported"])
    directory = tmp_path / "export"
    run([client, "--server", cluster.addresses[1], "export", "imported", "-o", directory])
    exported = sorted(directory.rglob("*.pt"))
    assert exported
    tensor = exported[0]
    place = tensor.relative_to(directory).parts
    where = ["--step", place[0].removeprefix("step"), "--rank", place[1]]
    for i, server in enumerate(cluster.addresses):
        target = tmp_path / f"tensor{i}.pt"
        run([client, "--server", server, "tensor", "imported", tensor.stem, *where, "-o", target])
        assert target.read_bytes() == tensor.read_bytes()
    # Both sides of a comparison of contents come from another server.
    rows, code, _ = asked(client, cluster.addresses[2], "compare", "imported", "imported", "--all")
    assert code == 0
    assert any(row.get("basis") == "content" for row in rows)


@pytest.mark.timeout(240)
def test_a_server_is_killed_and_returns(cluster, tmp_path, client, reference):
    # One slow run over all of it, of a job that names one server only.
    flags = ["--rate=750", "--policy=spool", f"--spool={tmp_path / 'spool'}", "--drain=90"]
    command = load(reference, cluster.addresses[0], *flags, steps=10)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as generator:
        try:
            wait_until(
                lambda: len(ranks_of(asked(client, cluster.addresses[0], "steps", "load")[0])) == RANKS,
                60,
                "every rank has a step",
            )
            lost = held_by(client, cluster, 2)
            assert lost and len(lost) < RANKS
            cluster.kill(2)

            def others_go_on():
                rows, code, said = asked(client, cluster.addresses[0], "steps", "load")
                assert (code, "incomplete" in said) == (FAILED, True), (code, said)
                assert cluster.addresses[2] in said
                assert all(rank in said for rank in lost), (lost, said)
                assert ranks_of(rows).isdisjoint(lost)
                steps = collections.Counter(row["rank"] for row in rows if row["state"].lower() == "complete")
                return len(steps) == RANKS - len(lost) and min(steps.values()) >= 4

            wait_until(others_go_on, 60, "ranks of the other servers go on")
            rank = sorted(lost)[0].removeprefix("rank")
            rows, code, said = asked(client, cluster.addresses[1], "records", "load", "--step", "0", "--rank", rank)
            assert (rows, code) == ([], FAILED)
            assert cluster.addresses[2] in said
            assert asked(client, cluster.addresses[1], "runs")[1] == FAILED
            assert (
                run([client, "--server", cluster.addresses[1], "delete", "load", "--yes"], check=False).returncode
                == FAILED
            )
            cluster.start(2)
            out, err = generator.communicate(timeout=150)
        finally:
            generator.kill()
    counts = json.loads(out.splitlines()[-1])
    assert (counts["undrained_ranks"], counts["fragments_dropped"], counts["faults"]) == (0, 0, 0), err
    for server in cluster.addresses:
        rows, code, said = asked(client, server, "steps", "load")
        assert (code, said) == (0, "")
        found = collections.Counter((row["rank"], row["state"].lower(), row["records"]) for row in rows)
        assert found == {(f"rank{rank}", "complete", RECORDS): 10 for rank in range(RANKS)}
        assert sum(row["tensors"] for row in rows) == counts["tensors_emitted"]
        assert all(row["gap_fragments"] == 0 for row in rows)


@pytest.mark.timeout(120)
def test_a_new_shard_serves_new_runs_and_old_ones_stay(tmp_path, short_directory, client, reference):
    (tmp_path / "data").mkdir()
    with Cluster(short_directory, tmp_path / "data", size=2) as two:
        run(load(reference, two.addresses[0], run_name="old"))
        held = [held_by(client, two, i, "old") for i in range(2)]
        for i in range(2):
            two.stop(i)
    with Cluster(short_directory, tmp_path / "data") as three:
        # The same ranks again, by the server without a part of the run: each goes to its former server.
        run(load(reference, three.addresses[2], run_name="old", steps=4))
        assert held_by(client, three, 2, "old") == set()
        assert [held_by(client, three, i, "old") for i in range(2)] == held
        run(load(reference, three.addresses[0], run_name="new"))
        assert all(held_by(client, three, i, "new") for i in range(3))
        for server in three.addresses:
            rows, code, _ = asked(client, server, "steps", "old")
            assert (code, len(rows)) == (0, RANKS * 4)


@pytest.mark.timeout(120)
def test_a_run_of_a_server_that_was_alone_stays_with_it(tmp_path, short_directory, client, reference):
    (tmp_path / "data").mkdir()
    with external_server(short_directory / "s1", tmp_path / "data" / "s1", tmp_path / "alone.log"):
        run(load(reference, f"unix:{short_directory}/s1", run_name="old", ranks=3))
    with Cluster(short_directory, tmp_path / "data") as three:
        run(load(reference, three.addresses[0], run_name="old", ranks=6, steps=5))
        assert [len(held_by(client, three, i, "old")) for i in range(3)] == [0, 6, 0]
        for server in three.addresses:
            rows, code, _ = asked(client, server, "steps", "old")
            assert (code, len(rows)) == (0, 6 * 5)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("flag", ["max_ranks", "max_streams_per_peer"])
def test_a_limit_is_refused_with_the_name_of_its_flag(flag, tmp_path, short_directory, reference):
    address = f"unix:{short_directory}/s"
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "log", f"--{flag}=3"):
        done = run(load(reference, address, "--drain=12", "--policy=drop", ranks=4))
        assert json.loads(done.stdout.splitlines()[-1])["undrained_ranks"] == 1
        assert f"--{flag}" in done.stdout
        # Another run: which three of the four ranks came first is not said.
        done = run(load(reference, address, run_name="other", ranks=3))
        assert json.loads(done.stdout.splitlines()[-1])["undrained_ranks"] == 0


def refusal(*flags):
    done = run([find_binary("msprobe-server"), "--data_dir=/nowhere/at/all", *flags], check=False)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_flags_that_do_not_go_together_are_refused():
    assert "--this_shard=c:1 is none of --shards" in refusal("--shards=a:1,b:1", "--this_shard=c:1")
    assert "needs --shards" in refusal("--this_shard=c:1")
    assert "stands there twice" in refusal("--shards=a:1,a:1")
    assert "--max_ranks=-1 is not valid" in refusal("--max_ranks=-1")
