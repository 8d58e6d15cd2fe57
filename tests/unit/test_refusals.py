"""What a stream remembers of a batch that could not be published."""

from lakehouse.pipeline.refusals import AGAIN_SECONDS, Refusals

ERROR = ValueError("no")


def test_a_refusal_holds_until_what_decided_it_changes_or_an_hour_has_passed():
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
