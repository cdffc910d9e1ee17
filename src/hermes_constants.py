"""The documented import path for where things live. Re-exports, nothing else."""

from hermes.home import get_default_hermes_root, get_hermes_home

__all__ = ["get_default_hermes_root", "get_hermes_home"]
