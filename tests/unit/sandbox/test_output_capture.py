"""What is kept of an output, against the plain definition of head and tail."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from app.sandbox.machine.supervisor import OutputCapture


@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(0, 60))
def test_head_and_tail_of_any_chunks(chunks: list[bytes], limit: int) -> None:
    kept = OutputCapture(limit)
    for chunk in chunks:
        kept.add(chunk)
    whole = b"".join(chunks)
    head, tail = limit // 2, limit - limit // 2
    expected = whole if len(whole) <= limit else whole[:head] + (whole[-tail:] if tail else b"")
    assert kept.value() == expected
    assert kept.dropped == len(whole) - len(expected)
    assert kept.seen == len(whole)


def test_memory_stays_within_limit_and_one_chunk() -> None:
    kept = OutputCapture(1000)
    tracemalloc.start()
    try:
        for _ in range(1000):
            kept.add(b"x" * 700)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.seen == 700_000
    assert size < 20_000
