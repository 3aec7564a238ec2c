"""msprobe-client report: one file that a browser shows from the disk, without a server and without a network."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from harness.browser import keep_picture
from harness.processes import find_binary, run
from msprobe_client import Client
from web_pages import BAD_RANK, NAN_AT, STEPS

MOST_BYTES = 2_000_000
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def client():
    path = find_binary("msprobe-client")
    assert path, "msprobe-client is not installed: run `make build`"
    return path


@pytest.fixture(scope="module")
def dumps(four, tmp_path_factory):
    """The runs as dump directories."""
    folder = tmp_path_factory.mktemp("dumps")
    with Client(four[1]) as client:
        for name in ("healthy", "planted", "ranks"):
            client.export(name, folder / name)
    return folder


@pytest.fixture
def shown(chromium):
    """Opens a report with the network off; afterwards nothing was asked for, and the console is empty."""
    from playwright.sync_api import expect

    contexts, said, asked = [], [], []

    def show(file, width=1400):
        context = chromium.new_context(viewport={"width": width, "height": 950}, offline=True, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(f"file://{file}")
        expect(page.locator("html[data-ready]")).to_be_attached(timeout=20_000)
        assert page.inner_text("#status") == ""
        return page

    yield show
    for context in contexts:
        context.close()
    assert said == []
    assert all(url.startswith("file://") for url in asked), asked


def test_the_argument_that_is_blamed_stands_in_the_table_with_that_of_the_other_run(client, shown, tmp_path):
    def tensor(value):
        numbers = {"Max": value, "Min": -value, "Mean": 0.0, "Norm": value}
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8], "requires_grad": False} | numbers

    for side, share, out in (("target", 0.1, 1.5), ("golden", 0.5, 2.0)):
        place = tmp_path / side / "step0" / "rank0"
        place.mkdir(parents=True)
        call = {
            "input_args": [tensor(1.0)],
            "input_kwargs": {"p": {"type": "float", "value": share}, "mode": {"type": "str", "value": "mean"}},
            "output": [tensor(out)],
        }
        dump = {"task": "statistics", "level": "L1", "data": {"Functional.dropout.0.forward": call}}
        (place / "dump.json").write_text(json.dumps(dump))
    file = tmp_path / "report.html"
    run([client, "report", "target", "golden", "-o", file], cwd=tmp_path, MSPROBE_SERVER="")
    page = shown(file)
    assert page.inner_text("#divergence").endswith("argument (Functional.dropout.0.forward.input.p).")
    rows = page.locator("#tensors-of-record tr")
    texts = [re.sub(r"\s+", " ", text).strip() for text in rows.all_inner_texts()]
    assert "input.p 0.1, in golden 0.5 float" in texts and "input.mode mean str" in texts
    assert page.locator("#tensors-of-record tr.current").inner_text().startswith("input.p")
    assert page.locator("#trend svg").count() == 1, "the trend is that of a tensor"


def test_what_one_side_lacks_is_an_empty_cell_of_its_csv(client, shown, tmp_path):
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8], "requires_grad": False}
    call = {"input_args": [], "output": [tensor | {"Max": 1.0, "Min": -1.0, "Mean": 0.0, "Norm": 2.0}]}
    for side, names in (("target", ("sin",)), ("golden", ("sin", "cos"))):
        place = tmp_path / side / "step0" / "rank0"
        place.mkdir(parents=True)
        data = {f"Torch.{name}.0.forward": call for name in names}
        (place / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    file = tmp_path / "report.html"
    run([client, "report", "target", "golden", "-o", file], cwd=tmp_path, MSPROBE_SERVER="")
    page = shown(file)
    with page.expect_download() as saved:
        page.click("#keep-differences button:has-text('CSV')")
    (row,) = csv.DictReader(io.StringIO(Path(saved.value.path()).read_text()))
    assert row["Tensor"] == "Torch.cos.0.forward.output.0"
    assert list(row.values())[5:8] == ["", "", ""], "the numbers of either side, and how far they are apart"


def test_two_runs_of_a_server(client, four, shown, tmp_path):
    file = tmp_path / "report.html"
    done = run([client, "--server", four[1], "report", "planted", "healthy", "-o", file])
    assert str(file) in done.stdout and file.stat().st_size < MOST_BYTES
    page = shown(file)
    assert re.match(
        rf"NaN began at step {NAN_AT}, process \d+, torch\.log, overflowing\.py:\d+\.$", page.inner_text("#verdict")
    )
    assert page.inner_text("#divergence").startswith(f"Differs from healthy first at step {NAN_AT}, ")
    assert page.title() == "planted and healthy · msprobe"
    assert "overflowing.py" in page.inner_text("#stack") and page.locator("#stack .own").count() >= 1
    page.locator("#origins button").first.click()
    assert page.inner_text("#record-name").startswith("Torch.log.0.forward · ")
    assert page.locator("#trend .mark-nan").count() == STEPS - NAN_AT
    assert "differ" in page.inner_text("#differences-text") and page.locator("#differences tr").count() > 10
    assert page.locator("#modules li.wrong > details[open] code", has_text="layers").count() >= 1, (
        "open where it is wrong"
    )
    assert page.inner_text("#graph-say").startswith("The two sides part in Tensor.__sub__.0.forward: ")
    assert page.inner_text("#graph-cell").endswith("it began here")
    assert drawn(page, "#graph-target", BAD) and drawn(page, "#graph-golden", BAD), "both sides have colours"
    page.focus("#map")
    page.keyboard.press("End")
    assert re.search(rf"step {STEPS - 1}: ", page.inner_text("#cell"))
    page.select_option("#which-map", "1")
    assert "that of healthy" in page.inner_text("#legend")
    with page.expect_download() as saved:
        page.click("#keep-differences button:has-text('CSV')")
    assert saved.value.suggested_filename.endswith(".csv")
    keep_picture(page, "web_page/report", full_page=True)


BAD = "#d9480f"

# Whether a canvas shows a colour.
SHOWS = """([selector, colour]) => {
  const canvas = document.querySelector(selector), { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const wanted = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  for (let i = 0; i < data.length; i += 4) if (wanted.every((part, j) => data[i + j] === part)) return true;
  return false;
}"""


def drawn(page, canvas, colour):
    return page.evaluate(SHOWS, [canvas, colour])


def test_modules_of_the_graph_open_and_close_in_the_file(client, four, shown, tmp_path):
    file = tmp_path / "report.html"
    run([client, "--server", four[1], "report", "planted", "-o", file])
    page = shown(file)
    assert page.inner_text("#graph-cell") == "Torch.log.0.forward; critical; norm NaN; it began here"
    page.fill("#graph-find", "layers.2.Block.forward")
    page.wait_for_selector("#graph-found button")
    page.press("#graph-find", "Enter")
    expect_text(page, "#graph-cell", r"^Module\.layers\.2\.Block\.forward\.0; \d calls inside, open; ")
    keys = page.keyboard
    keys.press("ArrowLeft")
    expect_text(page, "#graph-cell", r"^Module\.layers\.2\.Block\.forward\.0; \d calls inside, closed; ")
    keys.press("ArrowDown")
    expect_text(page, "#graph-cell", r"^Module\.layers\.3\.Block\.forward\.0; ")
    keys.press("ArrowUp")
    keys.press("ArrowRight")
    expect_text(page, "#graph-cell", "calls inside, open; ")
    keys.press("ArrowDown")
    keys.press("ArrowRight")
    expect_text(page, "#graph-cell", r"^Module\.layers\.2\.proj\.Linear\.forward\.0; 1 call inside, open")
    page.click("#graph-first")
    expect_text(page, "#graph-cell", r"^Torch\.log\.0\.forward; critical")
    keys.press("Enter")
    keep_picture(page, "web_page/report_graph", "report", of="#graph")


def expect_text(page, selector, pattern):
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(re.compile(pattern))


def test_directories_need_no_server_of_ones_own(client, dumps, shown, tmp_path):
    file = tmp_path / "report.html"
    run([client, "report", "ranks", "-o", file], cwd=dumps, MSPROBE_SERVER="")
    page = shown(file, width=390)
    assert page.inner_text("#verdict").startswith(f"NaN began at step {NAN_AT}, rank {BAD_RANK}, torch.log, ")
    assert page.title() == "ranks · msprobe"
    assert page.locator("#differences-section").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.locator("#which-map option").all_inner_texts() == [f"rank {BAD_RANK}", "all ranks"]
    assert ".uploaded" not in file.read_text(), "it has the directory's name"


def test_clean_is_said_of_what_there_is(client, dumps, shown, tmp_path):
    shutil.copytree(dumps / "healthy", tmp_path / "cut")
    last = next((tmp_path / "cut" / f"step{STEPS - 1}").iterdir())
    (last / "INCOMPLETE").write_text("the program was killed")
    run([client, "report", "cut", "-o", "report.html"], cwd=tmp_path, MSPROBE_SERVER="")
    page = shown(tmp_path / "report.html")
    first, note = page.locator("#verdict > p").all_inner_texts()
    assert first.startswith(f"Clean, as far as was captured: no NaN, no infinity in {STEPS} steps of 1 rank, ")
    assert re.fullmatch(rf"Note: step {STEPS - 1} of cut, process \d+: incomplete, its program was gone .*\.", note)
    run([client, "report", "cut", dumps / "healthy", "-o", "two.html"], cwd=tmp_path, MSPROBE_SERVER="")
    page = shown(tmp_path / "two.html")
    assert page.locator("#verdict > p").all_inner_texts() == [first, note]
    agrees = f"Agrees with {dumps / 'healthy'} within tolerance, as far as both have records."
    assert page.locator("#divergence > p").all_inner_texts() == [agrees], "the note stands above"


def test_names_that_are_html_stay_text(client, dumps, shown, tmp_path):
    rank = tmp_path / "evil" / "step0" / "rank0"
    shutil.copytree(next((dumps / "healthy" / "step0").iterdir()), rank)
    text = (rank / "dump.json").read_text()
    (rank / "dump.json").write_text(text.replace("Torch.relu", f"Torch.{json.dumps(HOSTILE)[1:-1]}"))
    file = tmp_path / "report.html"
    run([client, "report", "evil", dumps / "healthy", "-o", file], cwd=tmp_path, MSPROBE_SERVER="")
    page = shown(file)
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("#differences")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "gone"], "gone"),
        (["report", "planted", "gone"], "gone"),
        (["report", "./nothing-here"], "nothing-here does not exist"),
        (["report", "planted", "-o", "/proc/report.html"], "/proc"),
        (["report", "planted", "-o", "/tmp"], "/tmp is a directory"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_line_and_leaves_no_file(client, four, tmp_path, words, said):
    done = run([client, "--server", four[1], *words], cwd=tmp_path, check=False)
    assert done.returncode in (2, 3) and said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pair_of_30_000_entries_stays_small_enough_to_attach(client, shown, tmp_path):
    for side, factor in (("target", 1.0), ("golden", 1.001)):
        folder = tmp_path / side / "step0" / "rank0"
        folder.mkdir(parents=True)
        data, construct = {}, {}
        for call in range(30_000):
            norm = factor * (1 + call % 97)
            numbers = {"Max": norm / 2, "Min": -norm / 2, "Mean": norm / 1e3, "Norm": norm}
            tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [128, 4096], **numbers}
            name = f"Module.model.layers.{call // 300}.mlp.experts.{call % 300}.Linear.forward.0"
            data[name] = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]}
            construct[name] = f"Module.model.layers.{call // 300}.Layer.forward.0"
        construct |= dict.fromkeys(construct.values(), None)
        (folder / "construct.json").write_text(json.dumps(construct))
        dump = {"task": "statistics", "level": "L0", "dump_data_dir": None, "data": data}
        (folder / "dump.json").write_text(json.dumps(dump))
    file = tmp_path / "report.html"
    run([client, "report", "target", "golden", "-o", file], cwd=tmp_path, MSPROBE_SERVER="")
    assert file.stat().st_size < MOST_BYTES
    page = shown(file)
    assert page.inner_text("#divergence").startswith("Differs from golden first at step 0, rank 0, ")
    assert "30 100 calls" in page.inner_text("#graph-say")


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_whatever_is_in_a_run_the_file_has_at_most_2_mb_and_says_what_it_leaves_out(client, shown, tmp_path):
    """100,000 records with long names, all NaN from one on, under a stack of 3,000 frames with long lines."""
    for side, bad_from in (("target", 40_000), ("golden", 1 << 30)):
        folder = tmp_path / side / "step0" / "rank0"
        folder.mkdir(parents=True)
        data, construct = {}, {"Module.model.Model.forward.0": None}
        for layer in range(1000):
            path = f"model.{'a_block_with_a_name_that_goes_on.' * 8}layers.{layer}"
            module = f"Module.{path}.Layer.forward.0"
            construct[module] = "Module.model.Model.forward.0"
            for call in range(100):
                name = f"Functional.{'an_operator_with_a_long_name_' * 6}{call}.{layer}.forward"
                value = float("nan") if len(data) >= bad_from else 1.0
                numbers = {"Max": value, "Min": value, "Mean": value, "Norm": value}
                tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], **numbers}
                clean = {**tensor, "Max": 1.0, "Min": 1.0, "Mean": 1.0, "Norm": 1.0}
                data[name] = {"input_args": [clean], "input_kwargs": {}, "output": [tensor]}
                construct[name] = module
        frames = [f"File /a/{'long/' * 30}path_{i}.py, line {i}, in call, \n {'x = y + ' * 20}z" for i in range(3000)]
        dump = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": data}
        (folder / "dump.json").write_text(json.dumps(dump))
        (folder / "construct.json").write_text(json.dumps(construct))
        (folder / "stack.json").write_text(json.dumps({"0": [list(data), frames]}))
    file = tmp_path / "report.html"
    run([client, "report", "target", "golden", "-o", file], cwd=tmp_path, MSPROBE_SERVER="")
    assert file.stat().st_size < MOST_BYTES
    page = shown(file)
    assert page.inner_text("#divergence").startswith("Differs from golden first at step 0, rank 0, ")
    assert "The two sides part in " in page.inner_text("#graph-say")
    assert page.locator("#stack .own").count() >= 1, "the record has the innermost frames"
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    left_out = page.locator("#lacks li").all_inner_texts()
    for pattern in (
        r"^In the graph: \d+ of 101001 calls: msprobe-client graph target golden -o graphs$",
        r"^\d+ of 60000 rows that differ: msprobe-client compare target golden$",
        r"^\d+ modules of the step: msprobe-client records target --step 0 --rank 0$",
        r"^All tensors and frames of Functional\.an_operator.*: msprobe-client records target .* --stack$",
    ):
        assert any(re.search(pattern, one) for one in left_out), (pattern, left_out)
