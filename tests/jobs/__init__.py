"""Tests of the work that the agent does without a person."""
