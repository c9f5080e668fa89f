"""Clusters through time: matching, events, history, change points."""
