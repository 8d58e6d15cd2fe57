"""Refusals of batches that a stream remembers."""

from lakehouse.pipeline.batches.refusals import AGAIN_SECONDS, Refusals

ERROR = ValueError("no")


def test_known_refusal_lasts_until_inputs_change_or_it_expires():
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    assert refusals.known("orders", (1, {"a": 2})) is None
    refusals.note("orders", (1, {"a": 2}), ERROR)
    now[0] = AGAIN_SECONDS - 1
    assert refusals.known("orders", (1, {"a": 2})) is ERROR
    assert refusals.known("orders", (1, {"a": 3})) is None
    assert refusals.known("carts", (1, {"a": 2})) is None
    now[0] = AGAIN_SECONDS
    assert refusals.known("orders", (1, {"a": 2})) is None
