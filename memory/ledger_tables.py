"""The tables of the ledger as this version knows them; the revisions in `ledger_migrations` lead here.

A run is a trajectory. Its line in `runs` is the sum of all its rows, kept up by whoever writes them, so that a list of
runs never has to add up a million rows. Every other row says whose it is (`tenant`, `trajectory`) and when it was
(`at`, Unix time in seconds); `at` counts absolutely, columns that end in `_s` are seconds, and the moments among them
(`offered_s`, `started_s`, `began_s`, `settled_s`) count from the start of the row's turn.
"""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

_NAME = sa.String(200)
_WORDS = sa.String(300)

RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("trajectory", _NAME, primary_key=True),
    sa.Column("tenant", _NAME, nullable=False, server_default=""),
    sa.Column("session", _NAME),
    sa.Column("model", _NAME),
    sa.Column("endpoint", _WORDS),
    sa.Column("runtime", sa.String(16)),
    sa.Column("held_out", sa.Boolean),
    sa.Column("began_at", sa.Float, nullable=False),
    sa.Column("ended_at", sa.Float, nullable=False),
    sa.Column("turns", sa.Integer, nullable=False, server_default="0"),
    sa.Column("errors", sa.Integer, nullable=False, server_default="0"),
    sa.Column("calls", sa.Integer, nullable=False, server_default="0"),
    sa.Column("prompt_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("completion_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("probes", sa.Integer, nullable=False, server_default="0"),
    sa.Column("probe_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("predictions", sa.Integer, nullable=False, server_default="0"),
    sa.Column("hit", sa.Integer, nullable=False, server_default="0"),
    sa.Column("joined", sa.Integer, nullable=False, server_default="0"),
    sa.Column("miss", sa.Integer, nullable=False, server_default="0"),
    sa.Column("stale", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("vetoed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("unclaimed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("egress", sa.Integer, nullable=False, server_default="0"),
    sa.Column("claims", sa.Integer, nullable=False, server_default="0"),
    sa.Column("served", sa.Integer, nullable=False, server_default="0"),
    sa.Column("saved_s", sa.Float, nullable=False, server_default="0"),
    sa.Column("wasted_s", sa.Float, nullable=False, server_default="0"),
    sa.Column("cost_usd", sa.Float, nullable=False, server_default="0"),
    sa.Column("probe_cost_usd", sa.Float, nullable=False, server_default="0"),
    sa.Column("spans", sa.Integer, nullable=False, server_default="0"),
    sa.Column("size_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("runs_latest", "ended_at"),
    sa.Index("runs_of_tenant", "tenant", "ended_at"),
)
"""One trajectory, summed up. `began_at`, `ended_at`: Unix time of its first request and of the last that is known of
it. `errors`: turns that did not end in a whole answer with status 200. `hit` .. `unclaimed`: its bets by outcome.
`egress`: discarded runs ahead that told a third party something. `claims`: real calls of declared tools; `served`:
those that got the result of a run ahead. `wasted_s`: tool seconds of discarded runs. `spans`: rows in the other tables;
`size_bytes`: about what they take with their indexes."""

TURNS = sa.Table(
    "turns",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("trajectory", _NAME, nullable=False),
    sa.Column("tenant", _NAME),
    sa.Column("session", _NAME),
    sa.Column("runtime", sa.String(16)),
    sa.Column("api", sa.String(40)),
    sa.Column("model", _NAME),
    sa.Column("endpoint", _WORDS),
    sa.Column("engine", sa.String(16)),
    sa.Column("stream", sa.Boolean),
    sa.Column("began_at", sa.Float, nullable=False),
    sa.Column("first_byte_s", sa.Float),
    sa.Column("first_token_s", sa.Float),
    sa.Column("reasoning_s", sa.Float),
    sa.Column("call_s", sa.Float),
    sa.Column("duration_s", sa.Float),
    sa.Column("status", sa.Integer),
    sa.Column("finish", sa.String(40)),
    sa.Column("calls", sa.Integer),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("cost_usd", sa.Float),
    sa.Column("held_out", sa.Boolean),
    sa.Column("probe_verdict", _WORDS),
    sa.Column("note", _WORDS),
    sa.Column("traceparent", sa.String(55)),
    sa.Column("tracestate", sa.String(512)),
    sa.Column("drafts_taken", sa.Integer),
    sa.Column("drafted_tokens", sa.Integer),
    sa.Column("accepted_tokens", sa.Integer),
    sa.Column("draft_saved_s", sa.Float),
    sa.Index("turns_in_order", "trajectory", "began_at"),
    sa.Index("turns_latest", "began_at"),
)
"""A model request and its answer. `held_out`: its trajectory ran without speculation (the control group). `session`:
what the agent calls it, where it says so. `engine`: the kind of endpoint. `first_token_s`: the first text, reasoning or
call was read; `reasoning_s`: how long the model's reasoning came, None where it showed none; `call_s`: its last call
was complete. `cost_usd`: by the prices in the settings, None without. `note`: why it did not end well. `traceparent`,
`tracestate`: W3C context of the agent's request. `drafts_taken`: how many of its probes' texts the engine took as
drafts; the tokens drafted and accepted are all of its answer's, whoever drafted them; `draft_saved_s`: the seconds that
they saved."""

PROBES = sa.Table(
    "probes",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("turn", sa.String(32), nullable=False),
    sa.Column("trajectory", _NAME),
    sa.Column("tenant", _NAME),
    sa.Column("at", sa.Float),
    sa.Column("model", _NAME),
    sa.Column("started_s", sa.Float),
    sa.Column("duration_s", sa.Float),
    sa.Column("prompt_tokens", sa.Integer),
    sa.Column("completion_tokens", sa.Integer),
    sa.Column("cost_usd", sa.Float),
    sa.Column("outcome", _WORDS),
    sa.Column("offered_chars", sa.Integer),
    sa.Index("probes_of_turn", "turn"),
)
"""A forked generation that predicts. `outcome`: predicted, no call, cut off, or what went wrong. `cost_usd`: by the
prices in the settings where the endpoint bills it, None elsewhere. `offered_chars`: how much of its text was offered to
the engine as a draft for the turn."""

PREDICTIONS = sa.Table(
    "predictions",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("turn", sa.String(32), nullable=False),
    sa.Column("trajectory", _NAME),
    sa.Column("tenant", _NAME),
    sa.Column("at", sa.Float),
    sa.Column("predictor", sa.String(40), nullable=False),
    sa.Column("tool", _NAME),
    sa.Column("arguments", sa.Text),
    sa.Column("confidence", sa.Float),
    sa.Column("probability", sa.Float),
    sa.Column("rests_on", sa.Float),
    sa.Column("offered_s", sa.Float),
    sa.Column("verdict", _WORDS),
    sa.Column("bet", sa.String(32)),
    sa.Column("came_true", sa.Boolean),
    sa.Index("predictions_of_turn", "turn"),
    sa.Index("predictions_of_tenant", "tenant", "at"),
)
"""A candidate as a predictor offered it, run or not. `tool` is None for "no call comes". `confidence`: the predictor's
own; `probability`: what it was worth (calibrated, with all that it rests on). `verdict`: what the gate said; `bet`: the
bet that it became, None where there was none (that call ran already, or no call was predicted). `came_true`: None where
the answer was not whole."""

BETS = sa.Table(
    "bets",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("turn", sa.String(32), nullable=False),
    sa.Column("trajectory", _NAME),
    sa.Column("tenant", _NAME),
    sa.Column("at", sa.Float),
    sa.Column("predictor", sa.String(40), nullable=False),
    sa.Column("tool", _NAME, nullable=False),
    sa.Column("effect", sa.String(12)),
    sa.Column("tier", sa.String(4)),
    sa.Column("egress", sa.Boolean),
    sa.Column("arguments", sa.Text),
    sa.Column("name_confidence", sa.Float),
    sa.Column("argument_confidence", sa.Float),
    sa.Column("probability", sa.Float),
    sa.Column("threshold", sa.Float),
    sa.Column("expected_s", sa.Float),
    sa.Column("verdict", _WORDS),
    sa.Column("ran", sa.Boolean),
    sa.Column("offered_s", sa.Float),
    sa.Column("latency_s", sa.Float),
    sa.Column("waited_s", sa.Float),
    sa.Column("settled_s", sa.Float),
    sa.Column("saved_s", sa.Float),
    sa.Column("wasted_s", sa.Float),
    sa.Column("cost_s", sa.Float),
    sa.Column("tokens", sa.Integer),
    sa.Column("outcome", sa.String(12), nullable=False),
    sa.Column("reason", _WORDS),
    sa.Index("bets_of_turn", "turn"),
    sa.Index("bets_of_tenant", "tenant", "at"),
)
"""A prediction that the gate judged, its pre-execution (`ran`), and what became of it: hit, joined, miss, stale,
failed, vetoed or unclaimed. `threshold`, `expected_s`: the probability that it had to reach, the seconds that it would
save. `egress`: its arguments told a third party something. `latency_s`: how long its run took; `waited_s`: how long its
claim waited; `wasted_s`: tool seconds of a run that nobody got."""

CLAIMS = sa.Table(
    "claims",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("turn", sa.String(32)),
    sa.Column("trajectory", _NAME),
    sa.Column("tenant", _NAME),
    sa.Column("at", sa.Float),
    sa.Column("tool", _NAME, nullable=False),
    sa.Column("effect", sa.String(12)),
    sa.Column("arguments", sa.Text),
    sa.Column("bet", sa.String(32)),
    sa.Column("outcome", sa.String(12), nullable=False),
    sa.Column("began_s", sa.Float),
    sa.Column("waited_s", sa.Float),
    sa.Column("latency_s", sa.Float),
    sa.Column("reason", _WORDS),
    sa.Index("claims_of_turn", "turn"),
    sa.Index("claims_of_tenant", "tenant", "at"),
)
"""A real call of a declared tool, and how it got its result: hit, joined or miss. `turn` is None where it is not known
which turn asked for it. `bet`: the run that it took or wanted. `latency_s`: how long the tool ran (ahead, on a hit);
`waited_s`: how long the agent waited."""

CONTENTS = sa.Table(
    "contents",
    METADATA,
    sa.Column("turn", sa.String(32), primary_key=True),
    sa.Column("said", sa.Text),
    sa.Column("answer", sa.Text),
    sa.Column("reasoning", sa.Text),
    sa.Column("calls", sa.Text),
)
"""What was said in a turn, where the operator has asked for it (`keep_content`), secrets taken out. `said`: JSON array
of the messages that are new since the turn before, each with `role`, `text`, `calls`, `results`; `calls`: JSON array of
the answer's calls with `name`, `arguments`."""

TABLES = {table.name: table for table in (RUNS, TURNS, PROBES, PREDICTIONS, BETS, CLAIMS, CONTENTS)}

OUTCOMES = ("hit", "joined", "miss", "stale", "failed", "vetoed", "unclaimed")
