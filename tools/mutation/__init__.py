"""A mutation run: break the source in small ways, and see whether a test notices.

- `mutants`: the changes, made from the syntax tree. The same seed chooses the same mutants.
- `coverage_map`: a plugin of pytest that records which tests call which functions.
- `tools.mutation_run`: the command.
"""
