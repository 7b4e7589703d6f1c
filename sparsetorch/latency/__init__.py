"""Latency: measured in real runtimes, in turns, with what chance could have done to the figures."""
