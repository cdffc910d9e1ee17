"""What a person set in `<home>/config.yaml`. Read when it is asked for: most programs need none of it."""

from __future__ import annotations

from hermes import errors, home


def setting(section: str, name: str) -> object:
    """One value of a section; None if there is no such, or no file."""
    file = home.get_hermes_home() / "config.yaml"
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return None
    if name not in text:  # parsing YAML costs more than opening a store
        return None
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        read = YAML(typ="safe", pure=True).load(text)
    except YAMLError as problem:
        raise errors.BadConfig(f"{file} cannot be read: {' '.join(str(problem).split())}") from problem
    values = read.get(section) if isinstance(read, dict) else None
    return values.get(name) if isinstance(values, dict) else None
