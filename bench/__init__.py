"""Benchmarks: `python -m bench`. Every figure is a ratio of two things measured in the same run.

The modules import each other relatively, since a wheel holds them as `affect_xp._bench`.
"""
