from __future__ import annotations

import pytest
import torch
from torch import nn

from agentspec.verifier.engine.linears import PackedLinear, pack_linears, works

needs_onednn = pytest.mark.skipif(not works(), reason="this torch has no oneDNN")


@needs_onednn
@pytest.mark.parametrize(("width", "height"), [(64, 96), (896, 128), (4864, 64)])
def test_each_row_has_the_same_bits_whatever_the_batch(width: int, height: int) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(width, height)
    rows = torch.randn(1, 70, width)
    with torch.inference_mode():
        packed = PackedLinear(linear)
        full = packed(rows)
        torch.testing.assert_close(full, linear(rows), atol=1e-4, rtol=1e-4)
        for count in (1, 2, 3, 5, 8, 33):
            assert torch.equal(packed(rows[:, :count]), full[:, :count])
            assert torch.equal(packed(rows[:, -count:]), full[:, -count:])


@needs_onednn
def test_only_plain_float32_layers_are_packed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4).to(torch.bfloat16))
    assert pack_linears(model) == 1
    assert isinstance(model[0], PackedLinear) and isinstance(model[2], nn.Linear)


def test_without_onednn_the_model_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentspec.verifier.engine.linears.works", lambda: False)
    model = nn.Sequential(nn.Linear(4, 4))
    assert pack_linears(model) == 0 and type(model[0]) is nn.Linear
