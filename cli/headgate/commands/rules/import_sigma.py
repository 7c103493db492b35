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

    PATH is a file or a folder. A Sigma document without an exact equivalent is rejected with its file, line and
    reason, or imported with a note about the approximation. Exit code 1 when a document is rejected. In files of an
    earlier import, the version of a changed rule is raised, and entries that Sigma does not have are kept: tests,
    mode, effective, budget, suppress, and all of then except severity and message.

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
    field_map, map_problems = _read_field_map(map_file, schema)
    if field_map is None:
        emit(
            output, {"problems": [_problem_json(p) for p in map_problems]}, "\n".join(p.render() for p in map_problems)
        )
        return 1
    documents, problems = _read_sigma_documents(path)
    report = import_rules(documents, field_map, ImportOptions(tuple(group_by)))
    results = [
        _write(imported, out) if out is not None else _ImportResult(imported, None, "") for imported in report.imported
    ]
    emit(output, _report_json(report, results, problems), _render_report(report, results, problems))
    return 1 if report.rejected or problems else 0


@dataclass(frozen=True, slots=True)
class _ImportResult:
    """An imported rule and the file it was written to.

    ``output_file``: None without ``--out``. ``outcome``: ``new``, ``raised`` (the rule changed and has a
    new version) or ``same``, with the version; empty without ``--out``.
    """

    imported: ImportedRule
    output_file: Path | None
    outcome: str


def _read_field_map(file: Path | None, schema: StreamSchema) -> tuple[FieldMap | None, list[Problem]]:
    from rulecore.sigma import FieldMap, read_map

    return (FieldMap(schema), []) if file is None else read_map(_read_text(file), str(file), schema)


def _read_sigma_documents(path: Path) -> tuple[list[YamlDocument], list[Problem]]:
    from rulecore.documents.yaml_reader import read_yaml

    files = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
    documents: list[YamlDocument] = []
    problems: list[Problem] = []
    for file in files:
        parsed, file_problems = read_yaml(_read_text(file), str(file))
        documents += [document for document in parsed if document.value is not None]
        problems += file_problems
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


def _write(imported: ImportedRule, out: Path) -> _ImportResult:
    """Write the rule to its file in ``out``. If an earlier import wrote this file, an unchanged rule keeps its version,
    and a changed one gets the next version."""
    from rulecore.sigma import write_rule

    file = out / f"{imported.rule.id}.yaml"
    existing = _existing_rule(file, imported.rule.id)
    rule, outcome = imported.rule, "new"
    if existing is not None:
        rule = _keep_local_fields(rule, existing)
        same = existing.model_copy(update={"version": rule.version}) == rule
        rule = rule.model_copy(update={"version": existing.version + (not same)})
        outcome = "same" if same else "raised"
    comments = [f"Imported from the Sigma rule {imported.title!r} in {Path(imported.file).name}.", *imported.notes]
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(write_rule(rule, comments), encoding="utf-8")
    return _ImportResult(imported, file, f"{outcome}, version {rule.version}")


def _keep_local_fields(rule: Rule, existing: Rule) -> Rule:
    """Return the new rule with the entries of the existing one that Sigma does not have: those listed here, and all of
    ``then`` except severity and message."""
    kept = {name: getattr(existing, name) for name in ("suppress", "mode", "effective", "budget", "tests")}
    then = existing.then.model_copy(update={"severity": rule.then.severity, "message": rule.then.message})
    return rule.model_copy(update={**kept, "then": then})


def _existing_rule(file: Path, rule_id: str) -> Rule | None:
    """Return the rule that an earlier import wrote to the file; None if there is none."""
    from rulecore.documents.loading import load_path

    if not file.exists():
        return None
    loaded, _ = load_path(file)
    return next((entry.rule for entry in loaded if entry.rule is not None and entry.rule.id == rule_id), None)


# --- the form of the results ------------------------------------------------------------------------------------------


def _render_report(report: ImportReport, results: Sequence[_ImportResult], problems: Sequence[Problem]) -> str:
    width = max((len(result.imported.rule.id) for result in results), default=0)
    lines = []
    for result in results:
        imported = result.imported
        outcome = "" if result.output_file is None else f"  ({result.outcome})"
        lines.append(
            f"{'noted   ' if imported.notes else 'imported'}  {imported.rule.id:{width}}  {imported.title}{outcome}"
        )
        lines += [f"          - {note}" for note in imported.notes]
    lines += [
        f"part      {part.title}: only counts in {', '.join(part.correlations)}" for part in report.correlation_parts
    ]
    lines += [f"rejected  {rejected.title}\n          {rejected.problem.render()}" for rejected in report.rejected]
    lines += [f"unread    {problem.render()}" for problem in problems]
    return "\n".join([*lines, _summary_line(report, results, problems)])


def _summary_line(report: ImportReport, results: Sequence[_ImportResult], problems: Sequence[Problem]) -> str:
    noted = sum(bool(imported.notes) for imported in report.imported)
    count = f"{len(report.imported)} {'rule' if len(report.imported) == 1 else 'rules'} imported, {noted} with notes"
    others = f"{len(report.correlation_parts)} parts of others, {len(report.rejected) + len(problems)} rejected"
    folders = {result.output_file.parent for result in results if result.output_file is not None}
    where = f"written to {folders.pop()}" if folders else "nothing was written; name a folder with --out"
    return f"{count}; {others}" + (f"; {where}" if results else "")


def _report_json(report: ImportReport, results: Sequence[_ImportResult], problems: Sequence[Problem]) -> Json:
    return {
        "imported": [
            {
                "rule": result.imported.rule.id,
                "title": result.imported.title,
                "source": result.imported.file,
                "notes": list(result.imported.notes),
                "file": None if result.output_file is None else str(result.output_file),
            }
            for result in results
        ],
        "parts": [
            {"title": part.title, "source": part.file, "of": list(part.correlations)}
            for part in report.correlation_parts
        ],
        "rejected": [{"title": rejected.title, **_problem_json(rejected.problem)} for rejected in report.rejected],
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
