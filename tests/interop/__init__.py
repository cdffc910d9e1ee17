"""Tests of the protocols through which other programs use Hermes."""
