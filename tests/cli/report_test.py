"""`onebatch report`: a page of runs whose figures are those of the runs' files, whatever is in the folder."""
import html
import json
import math
import random
import re
import statistics

import pytest

from program import DIGITS_MLP, Scratch, read_json_lines, settings

SCRIPT = "<script>alert(1)</script>"
STEPS, RANKS = 10_000, 64
LARGEST = 2_000_000  # bytes of a page
DRAWN = {"Loss": "loss", "Learning rate": "lr", "Gradient norm, before clipping": "grad_norm", "Samples per second": "samples_per_second"}


def rank_profile(rank):
    return {"rank": rank, "host": f"node{rank // 8}", "device": f"GPU {rank % 3}", "memory_limit_bytes": 16 << 30, "min_micro_batch": 1,
            "largest_micro_batch": 8, "max_micro_batch": 8, "peak_bytes": 1 << 30, "resident_bytes": 1 << 20, "optimizer_seconds": 0.001,
            "reduce_seconds": 0.001, "step_seconds": [[1, 0.01], [8, 0.05]]}  # fmt: skip


def plan_of(ranks):
    """Rank 0 has one large micro-batch and a small one, the others 200 equal ones."""
    parts = [{"rank": rank, "device": f"GPU {rank % 3}", "samples": 11 if rank == 0 else 800, "micro_batches": [[8, 1], [3, 1]] if rank == 0 else [[4, 200]],
              "micro_batch_seconds": [0.05, 0.02] if rank == 0 else [0.001], "predicted_seconds": 0.07 if rank == 0 else 0.2, "idle_fraction": 0.0,
              "kept_in_host": False} for rank in range(ranks)]  # fmt: skip
    samples = sum(part["samples"] for part in parts)
    return {"global_batch_size": samples, "predicted_step_seconds": 0.21, "equal_split_seconds": 0.4, "memory_split_seconds": 0.5, "ranks": parts, "notes": []}


def step_line(step, ranks, draw):
    compute = [0.15 + 0.001 * draw.random() for _ in range(ranks)]
    return {"step": step, "epoch": step // 1000, "consumed_samples": 100 * step, "time": 1.7e9 + 0.2 * step,
            "loss": None if step == 77 else 3.0 / step**0.3 + draw.random() * 0.1 + (50.0 if step == 4321 else 0.0),
            "lr": 0.1 * (1 - step / STEPS), "grad_norm": 1 + draw.random(), "skipped": step == 77, "step_seconds": 0.2 + 0.01 * draw.random(),
            "compute_seconds": compute, "data_wait_seconds": [0.001] * ranks, "exposed_comm_seconds": 0.01, "samples_per_second": 480 + draw.random(),
            "memory_peak_bytes": [(1 << 30) + rank for rank in range(ranks)], "reduced_bytes": 0, "plan": 0}  # fmt: skip


def write_lines(file, lines):
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_run(folder, *, name="run", steps=200, ranks=3, events=(), result=True, config=(), start=0, predicted=None):
    """A run's folder as if that many steps had been done."""
    folder.mkdir(parents=True)
    draw = random.Random(5)
    keys = "".join(f"{line}\n" for line in config)
    (folder / "config.toml").write_text(f"# every key\n\n[run]\nname = {json.dumps(name)}   # command line\nseed = 1   # default\n\n[optimizer]\n{keys}")
    (folder / "profile.json").write_text(json.dumps({"ranks": [rank_profile(rank) for rank in range(ranks)]}))
    (folder / "plan.json").write_text(json.dumps(plan_of(ranks)))
    write_lines(folder / "metrics.jsonl", (step_line(step, ranks, draw) for step in range(1, steps + 1)))
    write_lines(folder / "validation.jsonl", ({"step": step, "epoch": 1, "samples": 9, "loss": 1 / step, "f1": step / STEPS} for step in range(50, steps + 1, 50)))
    run = {"event": "run", "number": 0, "time": 1.7e9, "name": name, "command": "onebatch train x.toml", "onebatch": "1.2.3", "host": "node0", "ranks": ranks}
    begins = {"event": "training_begins", "number": 1, "time": 1.7e9, "first_step": start, "last_step": steps}
    begins |= {} if predicted is None else {"predicted_step_seconds": predicted}
    write_lines(folder / "events.jsonl", [run, begins, *events])
    if result:
        (folder / "result.json").write_text(json.dumps({"steps": steps, "replans": 0, "stopped_early": False}))
    return folder


class Page:
    def __init__(self, file):
        self.text = file.read_text()
        self.charts = {}
        for figure in re.findall(r'<figure class="chart">.*?</figure>', self.text, re.S):
            title = html.unescape(re.search(r"<figcaption>(.*?)</figcaption>", figure, re.S)[1])
            self.charts[title] = json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure, re.S)[1])["curves"]

    def row(self, name):
        """The exact values of a row of the summary, a column for each run."""
        row = re.search(rf'<th scope="row">{re.escape(name)}(?: <span[^>]*>.*?</span>)?</th>(.*?)</tr>', self.text, re.S)[1]
        return [float(value) for value in re.findall(r'<data value="([^"]*)">', row)]

    def words(self):
        return html.unescape(re.sub(r"<[^>]*>", " ", self.text))


@pytest.fixture
def report(onebatch, tmp_path):
    def draw(*folders, code=0):
        said = onebatch.run(1, "report", *folders, "--out", tmp_path / "page.html", code=code)
        return Page(tmp_path / "page.html") if code == 0 else said

    return draw


@pytest.fixture(scope="module")
def large(onebatch, tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("large") / "run", steps=STEPS, ranks=RANKS)
    onebatch.run(1, "report", folder)
    return Page(folder / "report.html"), read_json_lines(folder / "metrics.jsonl")


def test_a_page_of_many_steps_and_ranks_is_small(large):
    assert len(large[0].text.encode()) <= LARGEST


@pytest.mark.parametrize("title", DRAWN)
def test_bins_hold_each_step_once_with_its_least_mean_and_largest(large, title):
    page, lines = large
    values = {line["step"]: line[DRAWN[title]] for line in lines if line[DRAWN[title]] is not None}
    bins = page.charts[title][0]["bins"]
    assert len(bins) < STEPS / 5 and sum(one[5] for one in bins) == len(values)
    for first, last, least, mean, most, count in bins:
        held = [value for step, value in values.items() if first <= step <= last]
        assert len(held) == count
        assert [least, mean, most] == pytest.approx([min(held), statistics.fmean(held), max(held)], rel=1e-7)


def test_the_summary_has_the_figures_of_the_metrics(large):
    page, lines = large
    seconds = [line["step_seconds"] for line in lines]
    assert page.row("steps") == [STEPS] and page.row("samples") == [lines[-1]["consumed_samples"]]
    assert page.row("training loss, last step") == [lines[-1]["loss"]]
    assert page.row("a step, median") == pytest.approx([statistics.median(seconds)], rel=1e-12)
    assert sum(one <= page.row("95 % of the steps within")[0] for one in seconds) == 0.95 * STEPS
    assert page.row("time in steps") == pytest.approx([math.fsum(seconds)], rel=1e-9)
    rate = math.fsum(line["samples_per_second"] * line["step_seconds"] for line in lines) / math.fsum(seconds)
    assert page.row("samples per second") == pytest.approx([rate], rel=1e-9)
    assert page.row("predicted for a step") == [0.21]


def test_every_number_of_validations_is_drawn(large):
    assert [one[3] for one in large[0].charts["Validation: f1"][0]["bins"]][-1] == 1.0


def test_nothing_is_fetched_and_nothing_else_is_run(large):
    text = large[0].text
    assert "default-src 'none'" in text
    assert not re.search(r"""(?:src|href)=["'](?!#)""", text)


def test_words_of_a_run_are_only_words(report, tmp_path):
    folder = write_run(tmp_path / "runs" / "a <u> & 'c'", name=SCRIPT, config=[f'kind = "{SCRIPT}"   # x.toml:1'],
                       events=[{"event": "warning", "number": 2, "time": 1.7e9, "line": f"</td>{SCRIPT}"}])  # fmt: skip
    page = report(folder, write_run(tmp_path / "runs" / "other", name="</script>" + SCRIPT))
    assert "<script>alert" not in page.text and "<u>" not in page.text
    assert SCRIPT in page.words()


def test_a_run_that_failed_says_why(report, tmp_path):
    failed = {"event": "failed", "number": 2, "time": 1.7e9, "code": 1, "reason": "the loss is not finite"}
    assert "failed: exit code 1: the loss is not finite" in report(write_run(tmp_path / "run", result=False, events=[failed])).words()


def test_a_resumed_run_shows_both_starts(report, tmp_path):
    again = [{"event": "ended", "number": 2, "time": 1.7e9, "stopped_by_signal": True, "stopped_early": False},
             {"event": "run", "number": 0, "time": 1.7e9 + 9, "command": "onebatch train x.toml --resume", "onebatch": "1.2.3", "ranks": 3},
             {"event": "training_begins", "number": 1, "time": 1.7e9 + 9, "first_step": 150, "last_step": 200}]  # fmt: skip
    page = report(write_run(tmp_path / "run", events=again))
    assert ">R</text>" in page.text
    words = page.words()
    assert "stopped by a signal, saved" in words and "goes on after step 150, to step 200" in words
    assert "151 to 200" in words, "the prediction is of the steps of this plan"


@pytest.fixture
def on_fewer_ranks(tmp_path):
    """A run of 100 steps on four large devices, which then went on for 100 on two small ones."""
    again = [{"event": "run", "number": 0, "time": 1.7e9 + 9, "command": "onebatch train x.toml --resume", "onebatch": "1.2.3", "ranks": 2},
             {"event": "training_begins", "number": 1, "time": 1.7e9 + 9, "first_step": 100, "last_step": 200}]  # fmt: skip
    folder = write_run(tmp_path / "run", ranks=4, events=again)
    small = {"compute_seconds": [0.1, 0.2], "data_wait_seconds": [0.0] * 2, "memory_peak_bytes": [100 << 20, 200 << 20]}
    write_lines(folder / "metrics.jsonl", (line | (small if line["step"] > 100 else {}) for line in read_json_lines(folder / "metrics.jsonl")))
    (folder / "profile.json").write_text(json.dumps({"ranks": [rank_profile(rank) | {"memory_limit_bytes": 400 << 20} for rank in range(2)]}))
    (folder / "plan.json").write_text(json.dumps(plan_of(2)))
    return folder


def test_devices_of_an_earlier_start_are_not_held_against_the_last_ones(report, on_fewer_ranks):
    page = report(on_fewer_ranks)
    words = page.words()
    assert "Steps up to 100 are of an earlier start" in words
    assert not [wrong for wrong in ("above the limit", "not named", "; no limit", "not on record") if wrong in words]
    assert "rank 1" in words and "rank 2" not in words
    rows = re.findall(r'<tr data-rank="(\d)">.*?<data value="([^"]*)">', page.text, re.S)
    assert [(rank, float(value)) for rank, value in rows] == [("0", pytest.approx(0.1)), ("1", pytest.approx(0.2))]


@pytest.mark.parametrize("last", (200, 400))
def test_a_start_without_a_step_leaves_them_to_the_one_before(report, on_fewer_ranks, last):
    """A complete run that was started again, and one that was killed before its first step."""
    with open(on_fewer_ranks / "events.jsonl", "a") as file:
        for number, line in enumerate(({"event": "run", "command": "train", "ranks": 2}, {"event": "training_begins", "first_step": 200, "last_step": last})):
            file.write(json.dumps({"number": 10 + number, "time": 1.7e9 + 99, **line}) + "\n")
    assert "Steps up to 100 are of an earlier start" in report(on_fewer_ranks).words()


def test_a_limit_that_no_file_names_is_not_none(report, on_fewer_ranks):
    (on_fewer_ranks / "profile.json").unlink()
    words = report(on_fewer_ranks).words()
    assert "limit not on record" in words and "; no limit" not in words


@pytest.mark.parametrize("resume, is_left_out", [("auto", True), ("{run}/checkpoints/step-5", True), ("other/run", False), ("{run}-2", False)])
def test_a_repetition_begins_where_the_run_began(report, tmp_path, resume, is_left_out):
    named = resume.format(run=tmp_path / "run")
    folder = write_run(tmp_path / "run", config=[f'\n[checkpoint]\nresume = "{named}"   # x.toml:3'])
    assert ("--set checkpoint.resume=never" in report(folder).words()) == is_left_out


@pytest.mark.parametrize("result, words", [(True, "No step is on record."), (False, "No step is on record yet.")])
def test_no_step_is_to_come_of_a_complete_run(report, tmp_path, result, words):
    folder = write_run(tmp_path / "run", steps=0, result=False)
    if result:
        (folder / "result.json").write_text('{"steps": 5}')
    assert words in report(folder).words()


def test_an_incident_stands_where_it_was(report, tmp_path):
    run = write_run(tmp_path / "run", result=False, events=[{"event": "ended", "number": 2, "time": 1.7e9 + 9, "stopped_by_signal": True, "stopped_early": False}])
    for name, kind, time in (("a", "loss", "20200101T000000.000Z"), ("b", "request", "20400101T000000.000Z")):
        (run / f"incident-{name}.json").write_text(json.dumps({"kind": kind, "rank": 1, "reason": "somebody asked", "time": time}))
    page = report(run)
    assert page.words().index("loss of rank 1") < page.words().rindex("stopped by a signal, saved") < page.words().index("request of rank 1")
    assert "stopped by a signal, saved" in re.search(r'<th scope="row">[Ss]tate.*?</tr>', page.text, re.S)[0]


def predictions(page):
    """First step, last step, predicted, median: of each plan."""
    table = next(one for one in re.findall(r"<table>.*?</table>", page.text, re.S) if "for each plan" in one)
    rows = [re.findall(r"<td[^>]*>(?:<data value=\"([^\"]*)\">)?([^<]*)", row) for row in re.findall(r"<tr>.*?</tr>", table, re.S)]
    return [(*map(int, cells[0][1].split(" to ")), float(cells[1][0]), float(cells[2][0])) for cells in rows if cells]


def test_each_step_is_held_against_the_plan_that_it_was_done_under(report, tmp_path):
    """A run with a new plan after steps 60 and 120, which goes on after step 100: what was planned later is void."""
    events = [{"event": "replanned", "number": 3, "time": 1.7e9, "step": 60, "cause": "drift", "replans": 1, "predicted_step_seconds": 0.3},
              {"event": "replanned", "number": 4, "time": 1.7e9, "step": 120, "cause": "out_of_memory", "replans": 2, "predicted_step_seconds": 0.4},
              {"event": "run", "number": 0, "time": 1.7e9 + 9, "command": "onebatch train x.toml --resume", "onebatch": "1.2.3", "ranks": 3},
              {"event": "training_begins", "number": 1, "time": 1.7e9 + 9, "first_step": 100, "last_step": 200, "predicted_step_seconds": 0.15}]  # fmt: skip
    folder = write_run(tmp_path / "run", events=events, predicted=0.25)
    seconds = [line["step_seconds"] for line in read_json_lines(folder / "metrics.jsonl")]
    expected = [(1, 60, 0.25), (61, 100, 0.3), (101, 200, 0.15)]
    found = predictions(report(folder))
    assert [row[:3] for row in found] == expected
    assert [row[3] for row in found] == pytest.approx([statistics.median(seconds[a - 1 : b]) for a, b, _ in expected], rel=1e-12)


def places(page, title):
    """Of a chart: its axis, where its numbers stand, and where predictions are drawn."""
    figure = re.search(rf'<figure class="chart"><figcaption>{title}</figcaption>.*?</figure>', page.text, re.S)[0]
    axis = json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure, re.S)[1])
    numbers = {float(text): float(y) - 4.0 for y, text in re.findall(r'<text x="[\d.]+" y="([\d.]+)" class="e">([\d.]+)</text>', figure)}
    return axis, numbers, [float(y) for y in re.findall(r'<line class="level"[^>]* y1="([\d.]+)"', figure)]


def test_an_axis_that_is_cut_is_true_up_to_its_top(report, tmp_path):
    """One step takes 40 times as long as all others, and the prediction is far above those."""
    folder = write_run(tmp_path / "run", predicted=3.0)
    lines = read_json_lines(folder / "metrics.jsonl")
    lines[9] |= {"step_seconds": 9.0, "samples_per_second": 40_000.0}
    write_lines(folder / "metrics.jsonl", lines)
    page = report(folder)
    for title, levels in (("Samples per second", []), ("Seconds of a step", [3.0])):
        axis, numbers, drawn = places(page, title)
        _, _, top, bottom = axis["box"]
        low, high = axis["y"]
        height = lambda value: bottom - (value - low) / (high - low) * (bottom - top)
        assert axis["cut"] == high and len(numbers) >= 3 and max(numbers) == high
        assert list(numbers.values()) == pytest.approx([height(value) for value in numbers], abs=0.06), title
        assert drawn == pytest.approx([height(value) for value in levels], abs=0.06)
    assert "1 above the axis" in page.words()


def test_runs_are_drawn_over_each_other_and_compared(report, tmp_path):
    first = write_run(tmp_path / "first", name="first", config=["lr = 0.1   # x.toml:2"])
    second = write_run(tmp_path / "second", name="second", steps=100, config=["lr = 0.2   # x.toml:2"])
    page = report(first, second)
    assert page.row("steps") == [200, 100]
    assert [curve["name"] for curve in page.charts["Training loss"]] == ["A first", "B second"]
    assert [len(curve["bins"]) for curve in page.charts["Learning rate"]] == [200, 100]
    assert "optimizer.lr" in page.words()


@pytest.mark.parametrize("steps, ranks", [(0, 1), (1, 1), (2, 64)])
def test_few_steps_are_a_page_too(report, tmp_path, steps, ranks):
    page = report(write_run(tmp_path / "run", steps=steps, ranks=ranks, result=steps > 0))
    assert "Summary" in page.words() and "nan" not in page.words().lower().split()


@pytest.mark.parametrize("name", ["profile.json", "plan.json", "result.json", "metrics.jsonl", "validation.jsonl", "events.jsonl"])
@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"ranks": []}', '{"step": 1}', '{"step": 1e308, "plan": 1e300, "loss": "x", "compute_seconds": [null]}', '{"event": 3}'])
def test_broken_files_leave_the_rest_of_the_page(report, tmp_path, name, content):
    folder = write_run(tmp_path / "run", steps=20)
    (folder / name).write_text(content + "\n")
    assert "Summary" in report(folder).words()


def test_a_folder_that_is_no_run_is_refused_with_the_runs_in_it(report, tmp_path):
    write_run(tmp_path / "runs" / "mine", steps=1)
    assert re.search(r"is not a run's folder.*runs in it: \S*mine", report(tmp_path / "runs", code=2), re.S)
    assert "is no folder" in report(tmp_path / "nowhere", code=2)


def test_several_runs_need_a_file(onebatch, tmp_path):
    folders = [write_run(tmp_path / name, steps=1) for name in "ab"]
    assert "--out" in onebatch.run(1, "report", *folders, code=2)


@pytest.fixture(scope="module")
def trained(onebatch, tmp_path_factory):
    scratch = Scratch(tmp_path_factory.mktemp("trained"), DIGITS_MLP)
    onebatch.run(2, "train", scratch.config, *settings("run.max_steps=7", "run.name=run"))
    return scratch.runs / "run"


def test_a_run_leaves_its_page(trained):
    page, lines = Page(trained / "report.html"), read_json_lines(trained / "metrics.jsonl")
    assert [one[3] for one in page.charts["Loss"][0]["bins"]] == pytest.approx([line["loss"] for line in lines], rel=1e-7)
    assert "complete" in page.words()


def test_its_events_are_lines_that_programs_are_told(trained):
    events = [line["event"] for line in read_json_lines(trained / "events.jsonl")]
    assert events[0] == "run" and events[-1] == "ended" and "training_begins" in events and "checkpoint" in events
    assert not {"step", "profile", "plan"} & set(events)


def test_a_line_that_was_torn_costs_no_other(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP)
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=1", "run.name=run"))
    events = scratch.runs / "run" / "events.jsonl"
    whole, torn = events.read_text(), '{"event": "checkp'
    events.write_text(whole + torn)
    onebatch.run(1, "train", scratch.config, "--resume", *settings("run.max_steps=2", "run.name=run"))
    first, *added = events.read_text()[len(whole):].splitlines()
    assert first == torn
    assert [json.loads(line)["event"] for line in added][0] == "run"


def test_its_steps_are_held_against_its_plan(trained):
    plan, lines = json.loads((trained / "plan.json").read_text()), read_json_lines(trained / "metrics.jsonl")
    assert [row[:3] for row in predictions(Page(trained / "report.html"))] == [(1, len(lines), plan["predicted_step_seconds"])]


def test_one_can_do_without(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP)
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=2", "run.name=run", "log.report=false"))
    assert not (scratch.runs / "run" / "report.html").exists()


def test_a_page_that_cannot_be_written_costs_no_run(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP)
    onebatch.run(1, "train", scratch.config, *settings("run.max_steps=1", "run.name=run"))
    page = scratch.runs / "run" / "report.html"
    page.unlink()
    (page / "x").mkdir(parents=True)
    said = onebatch.run(1, "train", scratch.config, "--resume", *settings("run.max_steps=2", "run.name=run"))
    assert "warning: no report" in said


def test_a_run_in_progress_says_so(onebatch, tmp_path):
    scratch = Scratch(tmp_path, DIGITS_MLP)
    process = onebatch.start(1, "train", scratch.config, *settings("run.max_steps=1000000", "run.name=run"))
    try:
        metrics = scratch.runs / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
            assert process.poll() is None
        onebatch.run(1, "report", scratch.runs / "run", "--out", tmp_path / "page.html")
    finally:
        process.kill()
        process.communicate()
    assert "in progress" in Page(tmp_path / "page.html").words()
