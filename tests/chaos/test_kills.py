"""Nothing that was captured dies with its process: a thousand kills."""

import contextlib
import random

import pytest
from harness import fire, kills

TOTAL = kills.Tally()
# (age, machine): kills with a server of their own, one of this machine, one that comes later, one of another machine
KILLS = {
    ("young", "idle"): (200, 100, 100, 50),
    ("young", "busy"): (150, 100, 50, 50),
    ("old", "idle"): (50, 25, 25, 25),
    ("old", "busy"): (30, 15, 15, 15),
}


def show(tally):
    TOTAL.add(tally)
    print(f"\n{tally}\nso far: {TOTAL}")
    assert tally.recovered > 0, "every server had everything when the program was killed: this tests nothing"


@pytest.fixture(params=KILLS, ids="-".join)
def plan(request):
    """(the steps within which a program is killed, the number of kills by server), on a machine in the wanted state."""
    age, machine = request.param
    with kills.busy() if machine == "busy" else contextlib.nullcontext():
        yield kills.YOUNG_STEPS if age == "young" else kills.OLD_STEPS, KILLS[request.param]


@pytest.mark.timeout(3600)
def test_a_server_of_their_own(plan, scene):
    scene.steps, (count, _, _, _) = plan
    show(scene.embedded(count))


@pytest.mark.timeout(3600)
def test_a_server_of_this_machine(plan, scene, short_directory):
    scene.steps, (_, count, _, _) = plan
    show(scene.on_this_machine(short_directory / "s", count))


@pytest.mark.timeout(3600)
def test_a_server_that_comes_when_all_are_dead(plan, scene, short_directory):
    scene.steps, (_, _, count, _) = plan
    show(scene.unreachable(short_directory / "s", count))


@pytest.mark.timeout(3600)
def test_a_server_of_another_machine(plan, tmp_path, unkilled):
    steps, (_, _, _, count) = plan
    with fire.network() as there, kills.Programs(tmp_path, prefix=there.within(there.near)) as programs:
        scene = kills.Scene(tmp_path, unkilled, programs, random.Random(there.address), steps)
        show(scene.remote(there, count))


@pytest.mark.timeout(1200)
def test_killed_by_the_kernel_for_memory(scene):
    with kills.little_memory(128) as group:
        total = scene.out_of_memory(group, 20)
    print(total)
    TOTAL.add(total)
