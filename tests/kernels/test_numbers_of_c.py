"""Numbers of C in Python: of the type that C gives them."""

from __future__ import annotations

import pytest

from workbench.kernels.reading.c_snippets import number

NUMBERS = {
    "7": "7",
    "7u": "wp.uint32(7)",
    "7L": "wp.int64(7)",
    "7LU": "wp.uint64(7)",
    "7ull": "wp.uint64(7)",
    "0x7fffffff": "0x7fffffff",
    "0x80000000": "wp.uint32(0x80000000)",
    "0x100000000": "wp.int64(0x100000000)",
    "0x8000000000000000": "wp.uint64(0x8000000000000000)",
    "2147483647": "2147483647",
    "2147483648": "wp.int64(2147483648)",
    "9223372036854775808": "wp.uint64(9223372036854775808)",
    "010": "0o10",
    "0": "0",
    "0xAul": "wp.uint64(0xA)",
    "1.5f": "1.5",
    "1e3": "1e3",
    ".5F": ".5",
}


@pytest.mark.parametrize("word", NUMBERS)
def test_a_number_of_c_has_the_type_that_c_gives_it(word):
    assert number(word) == NUMBERS[word]
