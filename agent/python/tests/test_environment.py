"""What the package says where it cannot work."""

import sys
import sysconfig

import pytest
import torch
from msprobe import _check
from msprobe._check import check_environment


@pytest.mark.parametrize("version", ["2.12.1+cpu", "3.13.0"])
def test_another_minor_version_of_torch_is_refused_naming_both(version):
    with pytest.raises(ImportError) as refusal:
        check_environment(version)
    assert version in str(refusal.value)
    assert f"built for torch {'.'.join(torch.__version__.split('.')[:2])}, " in str(refusal.value)


def test_another_minor_version_of_python_is_refused_naming_both(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    with pytest.raises(ImportError, match=r"with Python \d.*, but this is Python 3\.99"):
        check_environment(torch.__version__)


def test_another_patch_of_the_same_minor_version_is_accepted():
    check_environment(".".join([*torch.__version__.split(".")[:2], "99+cpu"]))


def test_a_free_threaded_python_is_refused_in_one_sentence(monkeypatch, capsys):
    """`msprobe-client doctor` runs main() and shows its last line."""
    plain = sysconfig.get_config_var
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else plain(name))
    with pytest.raises(ImportError, match=r"free-threaded.*GIL") as refusal:
        check_environment(torch.__version__)
    assert _check.main() == 1
    assert capsys.readouterr().out.splitlines() == [str(refusal.value)]
