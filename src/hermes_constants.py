"""The documented import path for the home folders. This module only re-exports names."""

from hermes.home import get_default_hermes_root, get_hermes_home

__all__ = ["get_default_hermes_root", "get_hermes_home"]
