"""What shells complete, and the manual page: made of what parses the arguments, and so of all of it."""
import re
import shutil
import subprocess

import pytest


@pytest.fixture
def helped(onebatch):
    """Options of a command, as its own --help has them."""
    def options(command):
        text = onebatch.finish([onebatch.path, command, "--help"]).stdout
        return set(re.findall(r"--[\w-]+", " ".join(re.findall(r"^\s+((?:-\w,)?--[\w-]+(?:,--[\w-]+)*)", text, re.M))))

    return options


@pytest.fixture
def commands(onebatch):
    text = onebatch.finish([onebatch.path, "--help"]).stdout
    return set(re.findall(r"^  (\w+) {2,}", text.split("Subcommands:")[1], re.M))


@pytest.fixture
def completed(onebatch, tmp_path):
    """What bash offers for the last of these words."""
    (tmp_path / "words.bash").write_text(onebatch.finish([onebatch.path, "completion", "bash"]).stdout)

    def words(*line):
        array = " ".join(f"'{word}'" for word in line)
        script = f"""source {tmp_path}/words.bash
compopt() {{ :; }}
COMP_WORDS=({array}) COMP_CWORD={len(line) - 1}
_onebatch
printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return set(done.stdout.split())

    return words


def test_bash_completes_commands(completed, commands):
    assert len(commands) > 12
    assert completed("onebatch", "") == commands
    assert completed("onebatch", "tr") == {"train"}


def test_bash_completes_each_commands_options(completed, commands, helped):
    for command in commands - {"launch"}:
        assert completed("onebatch", command, "--") == helped(command), command


def test_bash_completes_what_an_option_may_be(completed):
    assert completed("onebatch", "check", "model.pt2", "--phase", "") == {"training", "evaluation"}
    assert completed("onebatch", "completion", "") == {"bash", "zsh", "fish"}
    assert completed("onebatch", "bench", "a") == {"all-reduce"}


def test_bash_completes_keys(completed, onebatch):
    rows = onebatch.finish([onebatch.path, "info", "--keys"]).stdout
    keys = set(re.findall(r"^\| `([\w.]+)`", rows, re.M))
    assert completed("onebatch", "train", "a.toml", "--set", "optimizer.") == {f"{key}=" for key in keys if key.startswith("optimizer.")}


def test_bash_completes_what_is_launched(completed, helped):
    assert completed("onebatch", "launch", "-np", "2", "train", "--") == helped("train")
    assert "train" in completed("onebatch", "launch", "-np", "2", "tr")


def test_bash_completes_files(completed, tmp_path):
    (tmp_path / "mine.toml").write_text("")
    assert "mine.toml" in completed("onebatch", "train", "mi")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_theirs(onebatch, tmp_path, shell, commands):
    script = onebatch.finish([onebatch.path, "completion", shell]).stdout
    assert all(command in script for command in commands)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "words").write_text(script)
    done = subprocess.run([shell, "-n", tmp_path / "words"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_an_unknown_shell_is_told_the_known_ones(onebatch):
    done = onebatch.finish([onebatch.path, "completion", "tcsh"])
    assert done.returncode == 2 and "bash" in done.stderr


def test_the_manual_page_has_every_command_and_option(onebatch, commands, helped):
    page = onebatch.finish([onebatch.path, "manual"]).stdout.replace("\\-", "-")
    for command in commands:
        assert f".SS onebatch {command}" in page, command
        part = page.split(f".SS onebatch {command}")[1].split("\n.SS")[0].split("\n.SH")[0]
        for option in helped(command) - {"--help"}:
            assert option in part, (command, option)


@pytest.mark.skipif(shutil.which("man") is None, reason="no man here")
def test_the_manual_page_renders_without_a_warning(onebatch, tmp_path):
    (tmp_path / "onebatch.1").write_text(onebatch.finish([onebatch.path, "manual"]).stdout)
    done = subprocess.run(["man", "--warnings", "-l", tmp_path / "onebatch.1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "onebatch doctor" in done.stdout and "EXIT STATUS" in done.stdout


def test_a_built_program_has_its_page_beside_it(onebatch):
    import pathlib
    page = pathlib.Path(onebatch.path).with_name("onebatch.1")
    assert page.read_text() == onebatch.finish([onebatch.path, "manual"]).stdout
