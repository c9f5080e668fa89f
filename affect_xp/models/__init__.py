"""Estimators: AFFECT, static clustering, and the methods the paper compares with."""
