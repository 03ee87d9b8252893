"""Sizes of a launch from which more workers, more pieces or a second function pay: measured, not derived."""

PARALLEL_FROM = 300_000  # statements of a launch below which two workers are no faster than one: some 5 us, vectorised
WAKE_FROM = 1_000_000  # below which it is faster than waking others
SUMS_FROM = 1_000_000  # below which copies of sums for each worker cost more than they save
LONG_FROM = 2_000_000  # statements of a launch from which workers that are through help the others
MANY_FROM = 100_000  # from which text pays that vectorises, over which compilers take 3 to 6 times as long
HURRIED_BELOW = 30_000  # below which it runs unoptimised at first: some 20 us in place of 4
LONG_TEXT = 1000  # statements of a text: of longer ones more may run so, as compilers take the longer over them
OPTIMISED_FROM = 100  # launches of unoptimised code from which it pays to optimise it
SLICE = 500_000_000  # statements of a part of a launch: less than a second, in which nobody sees Ctrl-C
PULL_FROM = 512  # threads below which a second function costs more than it saves


def large(threads: int) -> bool:
    """True if the grid is large enough for a second function (pull, peeled loop) to pay."""
    return threads >= PULL_FROM
