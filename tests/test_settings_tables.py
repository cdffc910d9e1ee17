"""The tables in the documentation are those that are generated from the declared settings."""

from __future__ import annotations

import re

from hermes.config.key_lookup import find_setting, find_variable, list_keys
from hermes.config.settings_schema import PlatformSection
from tools.settings_tables import DOCS, make_table, update_page

HOW = "the tables are not up to date: run `python -m tools.settings_tables`"


def test_every_table_is_as_the_declarations_make_it() -> None:
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert update_page(text) == text, f"{page.name}: {HOW}"
        assert text.count("<!-- table: ") == text.count("<!-- end of table -->"), page.name


def test_the_page_lists_every_setting_and_variable_and_no_other() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.<>-]+)` \| (?:`([\w<>]+)`)? \|", page, re.MULTILINE)
    values = dict(rows)
    assert len(values) == len(rows)
    common = {f"platforms.<name>.{name}" for name in PlatformSection.__struct_fields__}
    declared = {key for key in list_keys() if find_setting(key) is not None}
    elsewhere = {key for key in declared if is_documented_for_all_platforms(key)}
    assert values.keys() == (declared - elsewhere) | common
    for key in declared - elsewhere:
        assert (values[key] or None) == find_variable(key)


def is_documented_for_all_platforms(key: str) -> bool:
    """Return whether the documentation describes the setting once for all platforms, as it does for chat
    policies."""
    section, _, name = key.partition(".")
    if section == "platforms":
        return name.partition(".")[2] in PlatformSection.__struct_fields__
    return section in ("reset_by_type", "reset_by_platform")


def test_a_table_is_replaced_between_its_markers_only() -> None:
    page = "before\n<!-- table: setup flags -->\nstale\n<!-- end of table -->\nafter\n"
    fresh = update_page(page)
    assert fresh == page.replace("stale\n", make_table("setup flags"))
    assert update_page(fresh) == fresh
