"""Lists as files: which files become lists, and the location of each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from rulecore.language import ListType
from rulecore.lists.files import build_store, list_types, load_lists
from streamcore.schema import LONG, STRING, Type

HEAD = "list: limits\nversion: 1\nowner: o\nof: long\nvalue: decimal(12,2)\n"


def write(folder: Path, text: str, csv: str | None = None) -> Path:
    (folder / "limits.yaml").write_text(text)
    if csv is not None:
        (folder / "limits.csv").write_text(csv)
    return folder


def test_entries_in_the_document_become_a_list(tmp_path: Path) -> None:
    text = HEAD + 'expires: "2100-01-01T00:00:00Z"\nentries:\n  - [1, "2.50"]\n  - [2, 3, "2027-01-01T00:00:00Z"]\n'
    lists, problems = load_lists(write(tmp_path, text))
    assert not problems
    assert list_types(lists) == {"limits": ListType("limits", LONG, Type.parse("decimal(12,2)"))}
    content = build_store(lists).contents(0)["limits"]
    assert [content.get(key) for key in (1, 2, 3)] == [250, 300, None]


def test_entries_in_a_file_become_a_list(tmp_path: Path) -> None:
    text = HEAD + "file: limits.csv\n"
    csv = "value,lookup,expires\n1,2.50,\n2,3,2027-01-01T00:00:00Z\n\n-3,0.01\n"
    lists, problems = load_lists(write(tmp_path, text, csv))
    assert not problems
    content = build_store(lists).contents(1_900_000_000_000)["limits"]
    assert [content.get(key) for key in (1, 2, -3)] == [250, None, 1]


def test_a_file_of_one_column_is_a_list_without_values(tmp_path: Path) -> None:
    text = "list: ips\nversion: 1\nowner: o\nof: string\nfile: limits.csv\n"
    csv = 'value\n1.2.3.4\n"a,""b"\nüñ\n007\n'
    lists, problems = load_lists(write(tmp_path, text, csv))
    assert not problems
    assert list_types(lists) == {"ips": ListType("ips", STRING)}
    assert set(build_store(lists).contents(0)["ips"].values) == {"1.2.3.4", 'a,"b', "üñ", "007"}


@pytest.mark.slow
def test_a_large_file_is_published_in_parts(tmp_path: Path) -> None:
    text = "list: ips\nversion: 1\nowner: o\nof: string\nfile: limits.csv\n"
    (loaded,), problems = load_lists(write(tmp_path, text, "value\n" + "\n".join(f"v{n}" for n in range(20_000))))
    assert not problems
    keys = [key for key, _ in loaded.records()]
    assert keys[-1] == "list/ips"
    assert len(keys) > 2
    assert len(build_store([loaded]).contents(0)["ips"].values) == 20_000


PROBLEMS = [
    (HEAD, None, "limits.yaml:1:1", "either `entries` or a `file`"),
    (HEAD + "entries: []\nfile: limits.csv\n", None, "limits.yaml:1:1", "either `entries` or a `file`"),
    (HEAD + "entries: 5\n", None, "limits.yaml:6:10", "entries are a sequence"),
    (HEAD + "entries:\n  - [1, 2]\n  - [x, 2]\n", None, "limits.yaml:8:5", "'x' is no long"),
    (HEAD + "entries:\n  - [1, 2]\n  - [1, 3]\n", None, "limits.yaml:8:5", "the value occurs earlier in the list"),
    (HEAD + "owners: x\nentries: []\n", None, "limits.yaml:6:9", "unknown entry; did you mean owner?"),
    (HEAD.replace("long", "double") + "entries: []\n", None, "limits.yaml:4:5", "a list of double"),
    ("- a\n", None, "limits.yaml:1:1", "a list is a mapping"),
    (HEAD + "file: limits.csv\n", None, "limits.yaml:6:7", "cannot be read"),
    (HEAD + "file: ../secret.csv\n", None, "limits.yaml:6:7", "in the folder of this document"),
    (HEAD + "file: /etc/passwd\n", None, "limits.yaml:6:7", "in the folder of this document"),
    (HEAD + "file: [a]\n", None, "limits.yaml:6:7", "in the folder of this document"),
    (HEAD + "file: limits.csv\n", "1,2\n", "limits.csv:1:1", "the first line names the columns"),
    (HEAD + "file: limits.csv\n", "", "limits.csv:1:1", "the first line names the columns"),
    (HEAD + "file: limits.csv\n", "value,lookup\n1,2\n\n3,x\n", "limits.csv:4:1", "'x' is no decimal(12,2)"),
    (HEAD + "file: limits.csv\n", "value,lookup\n1,2\n3\n", "limits.csv:3:1", "lookup: null"),
    (HEAD + "file: limits.csv\n", "value,lookup\n1,2,3\n", "limits.csv:2:1", "3 columns, the first line names 2"),
    (HEAD + "file: limits.csv\n", 'value,lookup\n1,"2\n', "limits.csv:2:1", "not CSV"),
    (HEAD + "file: limits.csv\n", "value,lookup\n1,2\n1,2\n", "limits.csv:3:1", "the value occurs earlier in the list"),
]


@pytest.mark.parametrize(("text", "csv", "place", "message"), PROBLEMS)
def test_a_fault_in_a_list_file_has_its_file_and_line(
    tmp_path: Path, text: str, csv: str | None, place: str, message: str
) -> None:
    lists, problems = load_lists(write(tmp_path, text, csv))
    assert not lists
    (problem,) = problems
    assert place in problem.render()
    assert message in problem.render()


def test_a_symbolic_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "lists"
    folder.mkdir()
    (tmp_path / "secret.csv").write_text("value,lookup\n1,2\n")
    (folder / "limits.csv").symlink_to(tmp_path / "secret.csv")
    lists, problems = load_lists(write(folder, HEAD + "file: limits.csv\n"))
    assert not lists
    assert "in the folder of this document" in problems[0].message


def test_two_lists_cannot_have_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(HEAD + "entries: []\n")
    _, problems = load_lists(write(tmp_path, HEAD + "entries: []\n"))
    assert "is taken by" in problems[0].message
