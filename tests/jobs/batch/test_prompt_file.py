"""Prompt files are JSONL, CSV or text. An error names the file and the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.jobs.batch.prompt_file import BadPrompts, Prompt, read_prompts

TOOLS = ("read_file", "terminal")


def read(folder: Path, name: str, content: str | bytes) -> list[Prompt]:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_prompts(file, TOOLS))


def test_a_line_of_jsonl_is_a_prompt(tmp_path: Path) -> None:
    content = """
{"prompt": "Why is the sky blue?"}

{"prompt": "List the files.", "id": 7, "system": "Be brief.", "tools": ["read_file"], "metadata": {"set": "a"}}
"""
    assert read(tmp_path, "p.jsonl", content) == [
        Prompt("1", "Why is the sky blue?"),
        Prompt("7", "List the files.", "Be brief.", ("read_file",), {"set": "a"}),
    ]


def test_a_row_of_csv_is_a_prompt_and_further_columns_are_metadata(tmp_path: Path) -> None:
    rows = (
        "id,prompt,tools,topic",
        'a,"Two\nlines",read_file terminal,x',
        'b,"One, line",none,',
        "c,Usual tools,,y",
    )
    content = "".join(f"{row}\r\n" for row in rows)
    assert read(tmp_path, "p.csv", content) == [
        Prompt("a", "Two\nlines", None, ("read_file", "terminal"), {"topic": "x"}),
        Prompt("b", "One, line", None, (), {"topic": ""}),
        Prompt("c", "Usual tools", None, None, {"topic": "y"}),
    ]


def test_a_line_of_text_is_a_prompt(tmp_path: Path) -> None:
    assert read(tmp_path, "p.txt", "\ufefffirst\n\n  second \n") == [
        Prompt("1", "first"),
        Prompt("2", "second"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": \n', "p.jsonl, line 2: not valid JSON"),
        ("p.jsonl", '"only text"', "p.jsonl, line 1: a line must be a JSON object"),
        ("p.jsonl", '{"id": "x"}', "p.jsonl, line 1: `prompt` is missing or empty"),
        ("p.jsonl", '{"prompt": 3}', "p.jsonl, line 1: `prompt` must be text"),
        ("p.jsonl", '{"prompt": "a", "promt": "b"}', "p.jsonl, line 1: unknown field 'promt'"),
        ("p.jsonl", '{"prompt": "a", "id": true}', "p.jsonl, line 1: `id` must be text or a whole number"),
        ("p.jsonl", '{"prompt": "a", "system": 1}', "p.jsonl, line 1: `system` must be text"),
        ("p.jsonl", '{"prompt": "a", "tools": "terminal"}', "p.jsonl, line 1: `tools` must be a list"),
        ("p.jsonl", '{"prompt": "a", "tools": ["rm"]}', "p.jsonl, line 1: there is no tool 'rm'"),
        ("p.jsonl", '{"prompt": "a", "metadata": []}', "p.jsonl, line 1: `metadata` must be a JSON object"),
        (
            "p.jsonl",
            '{"prompt": "a", "id": "2"}\n{"prompt": "b"}',
            "line 2: the id '2' is already used in line 1",
        ),
        ("p.csv", "question\nwhy?\n", "p.csv, line 1: there is no column `prompt`"),
        ("p.csv", 'prompt,id\n"a\nb",1\nc,2,3\n', "p.csv, line 4: 3 values, but the file has 2 columns"),
        ("p.csv", 'prompt\n"open\n', "p.csv, line 2: not valid CSV"),
        ("p.csv", "prompt,metadata\na,[1]\n", "p.csv, line 2: `metadata` is not a JSON object"),
        ("p.txt", b"fine\n\xff\n", "p.txt, line 2: not valid UTF-8"),
        ("p.txt", "\n \n", "p.txt contains no prompts"),
        ("p.json", "[]", "p.json: the format is recognised by the ending of the name"),
    ],
)
def test_an_error_names_the_file_and_the_line(
    tmp_path: Path, name: str, content: str | bytes, problem: str
) -> None:
    with pytest.raises(BadPrompts) as refusal:
        read(tmp_path, name, content)
    assert problem in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPrompts, match=r"none\.txt cannot be read: No such file"):
        list(read_prompts(tmp_path / "none.txt", TOOLS))
