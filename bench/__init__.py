"""Benchmarks: `python -m bench`. Every figure is a ratio of two things measured in the same run.

The modules import for_each_block other relatively, since a wheel holds them as `affect_xp._bench`.
"""
