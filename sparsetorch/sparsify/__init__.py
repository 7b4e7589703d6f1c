"""Sparsity as pure functions of tensors: which weights, how much of each, in which shape, when, and which entries.

`policy` says which weights, `distribution` how much of each, `pattern` in which shape, `schedule` when; an algorithm
(`magnitude`, `rigl`) says which entries. Nothing here imports Lightning or touches a file; a lint rule keeps it so.
"""
