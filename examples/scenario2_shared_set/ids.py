"""The random ids of scenarios 2 and 3."""

IDS = 10_000_000
MASK = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B97F4A7C15


def random_ids(index):
    """Ids below `IDS` without end: SplitMix64 (Steele, Lea and Flood 2014), seeded by the index of its worker."""
    state = (0xC0FFEE ^ ((index + 1) * GOLDEN)) & MASK
    while True:
        state = (state + GOLDEN) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield (z ^ (z >> 31)) % IDS
