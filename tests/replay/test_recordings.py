"""Reading recordings, and the errors of files that are none."""

from __future__ import annotations

import gzip
import json

import pytest

from agentspec.errors import ConfigError
from agentspec.proxy.replay.__main__ import main
from agentspec.proxy.replay.recordings import library_of, load


def test_ids_and_results_are_made_where_they_were_not_recorded(made):
    stock = load(made)[1]
    call = stock.steps[1].calls[0]
    assert call.id == load(made)[1].steps[1].calls[0].id
    assert stock.steps[2].tool_call_id == call.id
    assert stock.steps[2].tool_result == '{"left":7}'


def test_repeated_tasks_are_numbered(made):
    assert [recording.model for recording in load(made)] == ["weather", "stock", "stock#2"]


def test_prompts_and_tools_are_found_one_folder_up(made):
    weather, stock, _ = load(made)
    library = library_of(made)
    assert library.system(weather) == "Be brief."
    assert library.tools_of(weather)[0]["function"]["name"] == "weather"
    assert library.system(stock) is None and library.tools_of(stock) == []


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b'{"steps": 1}', mtime=0), gzip.compress(b"", mtime=0)])
def test_a_file_that_is_no_recording_is_a_config_error(tmp_path, content):
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.jsonl\.gz"):
        load(file)


def test_plain_json_lines_are_read_too(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"task_id": "1", "steps": []}))
    assert load(file)[0].task_id == "1"


def test_the_command_says_in_one_line_why_it_cannot_start(tmp_path, capsys):
    assert main([str(tmp_path / "missing.jsonl.gz")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
