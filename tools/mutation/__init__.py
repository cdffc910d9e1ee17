"""Mutation tests: make small changes to the source, and check that a test fails for each.

- `mutants`: the changes, derived from the syntax tree. The same seed selects the same mutants.
- `recorder`: records which functions each test calls, in all processes.
- `coverage_map`: a pytest plugin that records the duration of each test.
- `call_map`: which tests to run for a mutant.
- `tools.mutation_run`: the command.
"""
