"""Mutation tests: make small changes to the source, and check that a test fails for each.

- `mutants`: the changes, derived from the syntax tree. The same seed selects the same mutants.
- `coverage_map`: a pytest plugin that records which tests call which functions.
- `tools.mutation_run`: the command.
"""
