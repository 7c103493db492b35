"""Generated Sigma rules in the forms of SigmaHQ's for the creation of processes, each with an event that fires it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.yaml_reader import read_yaml
from rulecore.sigma import import_rules, read_map
from streamcore.schema import StreamSchema

COLUMNS = {
    "Image": "image",
    "OriginalFileName": "original_file_name",
    "CommandLine": "command_line",
    "ParentImage": "parent_image",
    "ParentCommandLine": "parent_command_line",
    "CurrentDirectory": "directory",
    "User": "account",
    "IntegrityLevel": "integrity",
    "Hashes": "hashes",
    "Description": "description",
    "Company": "company",
    "Product": "product",
}
STREAM = StreamSchema.parse(
    {
        "name": "processes",
        "event_time": "ts",
        "keys": [["image"]],
        "fields": {"ts": "timestamp not null", **dict.fromkeys(COLUMNS.values(), "string")},
    }
)
_MAP = "owner: soc\nfields:\n" + "".join(f"  {name}: {column}\n" for name, column in COLUMNS.items())
_PARTS = ("ser", "vice", "host", "power", "shell", "run", "dll", "reg", "net", "cert", "util", "script", "task", "bits")
_OPTIONS = "-enc /c --type= -nop /add delete create http:// .ps1 .vbs \\Temp\\ AppData Software\\Microsoft Set- Invoke-"
_DIRECTORIES = ("C:\\Windows\\System32\\", "C:\\Program Files\\App\\", "C:\\Users\\alice\\AppData\\Local\\Temp\\")
#: Patterns of SigmaHQ's kinds, each with a text that it is found in.
_PATTERNS = (
    (r"\d{{2,}}-{0}\s+[a-z]+", "117-{0}  abc"),
    (r"(?:{0}|zz{0})=[A-F0-9]{{8}}", "{0}=00FF00FF"),
    (r"\\{0}[0-9]{{1,3}}\.(?:exe|dll)", "\\{0}42.dll"),
    (r"^.{{3,}}{0}$", "abc {0}"),
)
Event = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class SigmaCase:
    """A Sigma document, and columns of an event that satisfy it."""

    document: str
    event: Event


def sigma_cases(count: int, seed: int) -> list[SigmaCase]:
    """Return generated rules."""
    draw = random.Random(seed)
    return [_case(draw, number) for number in range(count)]


def _word(draw: random.Random) -> str:
    return "".join(draw.sample(_PARTS, 2)) + draw.choice(["", "", str(draw.randrange(1000))])


def _piece(draw: random.Random) -> str:
    return f"{draw.choice(_OPTIONS.split())}{draw.choice(['', ' '])}{_word(draw)}"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _case(draw: random.Random, number: int) -> SigmaCase:
    event: dict[str, str | None] = dict.fromkeys(COLUMNS.values())
    program = f"{_word(draw)}.exe"
    names = [program, *(f"{_word(draw)}.exe" for _ in range(draw.randrange(3)))]
    chosen = draw.choice(names)
    event["image"] = draw.choice(_DIRECTORIES) + (chosen.upper() if draw.random() < 0.3 else chosen)
    lines = ["  image:", f"    - Image|endswith: [{', '.join(_quote(chr(92) + name) for name in names)}]"]
    if draw.random() < 0.5:
        lines.append(f"    - OriginalFileName: {_quote(program.upper())}")
    texts = [f'"{event["image"]}"']
    condition = ["image"]
    for index in range(draw.randint(1, 2)):
        pieces = [_piece(draw) for _ in range(draw.randint(1, 5))]
        every = draw.random() < 0.4
        lines += [f"  cli{index}:", f"    CommandLine|contains{'|all' if every else ''}:"]
        lines += [f"      - {_quote(piece)}" for piece in pieces]
        texts += pieces if every else [draw.choice(pieces)]
        condition.append(f"cli{index}")
    kind = draw.random()
    if kind < 0.08:
        word = _word(draw)
        pattern, text = draw.choice(_PATTERNS)
        lines += ["  re:", f"    ParentCommandLine|re: {_quote(pattern.format(word))}"]
        event["parent_command_line"] = text.format(word)
        condition.append("re")
    elif kind < 0.2:
        head, tail = _word(draw), _word(draw)
        lines += ["  wild:", f"    ParentImage: {_quote('*' + chr(92) + head + '*' + tail + '?.exe')}"]
        event["parent_image"] = f"C:\\{head}\\x\\{tail}7.exe"
        condition.append("wild")
    elif kind < 0.4:
        parent = f"{_word(draw)}.exe"
        lines += ["  parent:", f"    ParentImage|endswith: {_quote(chr(92) + parent)}"]
        event["parent_image"] = draw.choice(_DIRECTORIES) + parent
        condition.append("parent")
    if draw.random() < 0.4:
        lines += ["  filter:", f"    CurrentDirectory|startswith: {_quote('C:' + chr(92) + _word(draw))}"]
        lines += [f"    User|contains: {_quote(_word(draw))}"] if draw.random() < 0.3 else []
        condition.append("not filter")
    if draw.random() < 0.1:
        lines += ["  empty:", "    Company: null"]
        condition.append("not empty")
        event["company"] = "Some Company"
    event["command_line"] = " ".join(texts)
    document = f"title: Generated {number}\nid: 00000000-0000-4000-8000-{number:012d}\nlevel: medium\n"
    document += "logsource: {product: windows, category: process_creation}\ndetection:\n" + "\n".join(lines)
    return SigmaCase(f"{document}\n  condition: {' and '.join(condition)}\n", event)


def import_cases(cases: Sequence[SigmaCase]) -> list[CompiledRule]:
    """Import and compile the rules, in order."""
    fields, problems = read_map(_MAP, "map.yaml", STREAM)
    assert fields is not None, problems
    rules = list[CompiledRule]()
    for case in cases:
        documents, faults = read_yaml(case.document, "sigma.yml")
        assert not faults, faults
        report = import_rules(documents, fields)
        assert not report.rejected, [one.problem.render() for one in report.rejected]
        rules.append(compile_rule(report.imported[0].rule, {STREAM.name: STREAM}, RuleLimits()))
    return rules


def process_events(cases: Sequence[SigmaCase], count: int, seed: int, share: float = 0.3) -> pl.DataFrame:
    """Return events: one that each rule fires on, then common ones, a share of them with parts of the rules' events."""
    draw = random.Random(seed)
    rows: list[dict[str, str | None]] = [dict(case.event) for case in cases][:count]
    programs = [f"{directory}{_word(draw)}.exe" for directory in _DIRECTORIES for _ in range(15)]
    words = [_piece(draw) for _ in range(300)]
    while len(rows) < count:
        program, parent = draw.choice(programs), draw.choice(programs)
        row: dict[str, str | None] = {
            "image": program,
            "original_file_name": program.rpartition("\\")[2],
            "command_line": f'"{program}" {" ".join(draw.choices(words, k=draw.randint(2, 14)))}',
            "parent_image": parent,
            "parent_command_line": f'"{parent}" {" ".join(draw.choices(words, k=draw.randint(1, 8)))}',
            "directory": draw.choice(_DIRECTORIES),
            "account": f"CORP\\{draw.choice(['alice', 'bob'])}",
            "integrity": draw.choice(["Medium", "High", None]),
            "hashes": f"MD5={draw.getrandbits(128):032X},SHA256={draw.getrandbits(256):064X}",
            "description": "A program of the system",
            "company": draw.choice(["Microsoft Corporation", None]),
            "product": "Operating System",
        }
        if draw.random() < share:
            other = draw.choice(cases).event
            for column in draw.sample(sorted(row), draw.randint(1, 4)):
                row[column] = _changed(draw, other[column])
            if draw.random() < 0.5:
                row["command_line"] = _changed(draw, other["command_line"])
                row["image"] = other["image"]
        rows.append(row)
    schema = dict.fromkeys(COLUMNS.values(), pl.String)
    return pl.DataFrame(rows, schema=schema).with_columns(pl.int_range(pl.len()).alias("ts"))


def _changed(draw: random.Random, text: str | None) -> str | None:
    """Return a text as it is, in another case, cut, with another character, or with text before it."""
    if text is None or draw.random() < 0.4:
        return text
    cut = draw.randrange(len(text) + 1)
    return draw.choice([text.upper(), text.lower(), text[:cut], text[cut:], text[:cut] + "é" + text[cut:], "x " + text])
