"""Benchmarks: `python -m bench`. Every figure is a ratio of two measurements of the same run.

The modules use relative imports, because the wheel contains them as `affect_xp._bench`.
"""
