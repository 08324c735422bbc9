"""The recorded endpoint as a process of its own."""

from __future__ import annotations

import openai
import pytest

from agentspec.errors import ConfigError
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.processes import endpoint_process


def test_serves_until_the_block_ends(made):
    with endpoint_process([made], Pace()) as url, openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        assert len(list(client.models.list())) == 3
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as late, pytest.raises(openai.APIConnectionError):
        late.models.list()


def test_says_why_it_did_not_start(tmp_path):
    told = pytest.raises(ConfigError, match=r"did not start: error: .*missing\.jsonl is no recording")
    with told, endpoint_process([tmp_path / "missing.jsonl"], Pace()):
        pass
