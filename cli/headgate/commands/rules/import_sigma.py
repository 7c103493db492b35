"""``headgate rules import``: converts Sigma files to rule files and lists the result for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.errors import InputError

if TYPE_CHECKING:
    from rulecore.documents.rule import Rule
    from rulecore.documents.yaml_reader import Problem, YamlDocument
    from rulecore.sigma import FieldMap, ImportedRule, ImportReport
    from streamcore.schema import StreamSchema

_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(name="import")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--stream", required=True, help="The stream of the rules.")
@click.option("--map", "map_file", type=_FILE, default=None, help="The column of each Sigma field (YAML).")
@click.option("--group-by", multiple=True, metavar="COLUMN", help="For correlations without a group-by. Repeatable.")
@click.option("--out", type=_FOLDER, default=None, help="Folder for the rules; without it nothing is written.")
@click.option("--streams", type=_FOLDER, default=None, help="Folder of the streams (default: streams/).")
@output_option
def command(
    path: Path,
    stream: str,
    map_file: Path | None,
    group_by: Sequence[str],
    out: Path | None,
    streams: Path | None,
    output: Output,
) -> int:
    """Convert Sigma rules and correlations to Headgate rules.

    PATHS are files and folders. A Sigma document without an exact equivalent is rejected with its file, line and
    reason, or imported with a note about the approximation. Exit code 1 when a document is rejected. In files of an
    earlier import, the version of a changed rule is raised, and entries that Sigma does not have (tests, mode,
    outcome and others) are kept.

    \b
    The map translates Sigma's names to those of the stream:
        fields:
          User: user_id                         # a column
          SourceIp: coalesce(ip, proxy_ip)      # or an expression
          Status: {is: status, case: lower}     # the column is all lower case: index it by value
        keywords: [message]                     # the columns that keyword lists search
        logsources:
          - {product: windows, category: process_creation, where: type = 'process'}

    \b
    Examples:
        headgate rules import sigma/ --stream shop --map sigma-map.yaml
        headgate rules import sigma/ --stream shop --map sigma-map.yaml --out rules/sigma
        headgate rules check rules/sigma
    """
    from headgate.records.stream_files import load_stream
    from rulecore.sigma import ImportOptions, import_rules

    schema = load_stream(stream, streams)
    fields, faults = _read_field_map(map_file, schema)
    if fields is None:
        emit(output, {"problems": [_problem_json(p) for p in faults]}, "\n".join(p.render() for p in faults))
        return 1
    documents, problems = _read(path)
    report = import_rules(documents, fields, ImportOptions(tuple(group_by)))
    written = [_write(one, out) if out is not None else _Written(one, None, "") for one in report.imported]
    emit(output, _json(report, written, problems), _text(report, written, problems))
    return 1 if report.rejected or problems else 0


@dataclass(frozen=True, slots=True)
class _Written:
    """An imported rule and its file. ``file`` is None without ``--out``. ``outcome``: whether the file is new, its
    version was raised, or it is unchanged."""

    imported: ImportedRule
    file: Path | None
    outcome: str


def _read_field_map(file: Path | None, schema: StreamSchema) -> tuple[FieldMap | None, list[Problem]]:
    from rulecore.sigma import FieldMap, read_map

    return (FieldMap(schema), []) if file is None else read_map(_read_text(file), str(file), schema)


def _read(path: Path) -> tuple[list[YamlDocument], list[Problem]]:
    from rulecore.documents.yaml_reader import read_yaml

    files = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
    documents: list[YamlDocument] = []
    problems: list[Problem] = []
    for file in files:
        parsed, faults = read_yaml(_read_text(file), str(file))
        documents += [document for document in parsed if document.value is not None]
        problems += faults
    if not documents and not problems:
        raise InputError(f"sigma: no document in {path}; name a file, or a folder with *.yml")
    return documents, problems


def _read_text(file: Path) -> str:
    """Read the file up to one byte above the limit; ``read_yaml`` rejects a longer one."""
    from rulecore.documents.yaml_reader import LoadLimits

    try:
        with file.open("rb") as stream:
            return stream.read(LoadLimits().file_bytes + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {' '.join(str(error).split())}; correct the file") from None


def _write(one: ImportedRule, out: Path) -> _Written:
    """Write the rule's file. If an older import exists, keep its version if the rule is unchanged, else raise it by
    one."""
    from rulecore.sigma import write_rule

    file = out / f"{one.rule.id}.yaml"
    before = _before(file, one.rule.id)
    rule, outcome = one.rule, "new"
    if before is not None:
        rule = _with_additions(rule, before)
        same = before.model_copy(update={"version": rule.version}) == rule
        rule = rule.model_copy(update={"version": before.version + (not same)})
        outcome = "same" if same else "raised"
    comments = [f"Imported from the Sigma rule {one.title!r} in {Path(one.file).name}.", *one.notes]
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(write_rule(rule, comments), encoding="utf-8")
    return _Written(one, file, f"{outcome}, version {rule.version}")


def _with_additions(rule: Rule, before: Rule) -> Rule:
    """Return the new rule with the entries of the old file that Sigma does not have: tests, mode, outcome and
    others."""
    kept = {name: getattr(before, name) for name in ("suppress", "mode", "effective", "budget", "tests")}
    then = before.then.model_copy(update={"severity": rule.then.severity, "message": rule.then.message})
    return rule.model_copy(update={**kept, "then": then})


def _before(file: Path, rule_id: str) -> Rule | None:
    from rulecore.documents.loading import load_path

    if not file.exists():
        return None
    loaded, _ = load_path(file)
    return next((one.rule for one in loaded if one.rule is not None and one.rule.id == rule_id), None)


# --- the form of the results ------------------------------------------------------------------------------------------


def _text(report: ImportReport, written: Sequence[_Written], problems: Sequence[Problem]) -> str:
    width = max((len(one.imported.rule.id) for one in written), default=0)
    lines = []
    for one in written:
        imported = one.imported
        outcome = "" if one.file is None else f"  ({one.outcome})"
        lines.append(
            f"{'noted   ' if imported.notes else 'imported'}  {imported.rule.id:{width}}  {imported.title}{outcome}"
        )
        lines += [f"          - {note}" for note in imported.notes]
    lines += [f"part      {one.title}: only counts in {', '.join(one.of)}" for one in report.parts]
    lines += [f"rejected  {one.title}\n          {one.problem.render()}" for one in report.rejected]
    lines += [f"unread    {problem.render()}" for problem in problems]
    return "\n".join([*lines, _summary_line(report, written, problems)])


def _summary_line(report: ImportReport, written: Sequence[_Written], problems: Sequence[Problem]) -> str:
    noted = sum(bool(one.notes) for one in report.imported)
    count = f"{len(report.imported)} {'rule' if len(report.imported) == 1 else 'rules'} imported, {noted} with notes"
    others = f"{len(report.parts)} parts of others, {len(report.rejected) + len(problems)} rejected"
    folders = {one.file.parent for one in written if one.file is not None}
    where = f"written to {folders.pop()}" if folders else "nothing was written; name a folder with --out"
    return f"{count}; {others}" + (f"; {where}" if written else "")


def _json(report: ImportReport, written: Sequence[_Written], problems: Sequence[Problem]) -> Json:
    return {
        "imported": [
            {
                "rule": one.imported.rule.id,
                "title": one.imported.title,
                "source": one.imported.file,
                "notes": list(one.imported.notes),
                "file": None if one.file is None else str(one.file),
            }
            for one in written
        ],
        "parts": [{"title": one.title, "source": one.file, "of": list(one.of)} for one in report.parts],
        "rejected": [{"title": one.title, **_problem_json(one.problem)} for one in report.rejected],
        "problems": [_problem_json(problem) for problem in problems],
    }


def _problem_json(problem: Problem) -> dict[str, Json]:
    return {
        "file": problem.file,
        "line": problem.place.line,
        "column": problem.place.column,
        "path": problem.path,
        "message": problem.message,
    }
