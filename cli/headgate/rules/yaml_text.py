"""A rule, feature or policy as the YAML that people write: its entries in the order of the model, without defaults.

Promises: reading the text again gives an equal document.
"""

from __future__ import annotations

import re
from typing import Any  # a document is made of anything

import yaml

from rulecore.documents.base import DocumentModel

_WIDTH = 110
_LONG = 80
_NUMBER = re.compile(r"[-+.]*[0-9]")  # the reader of rules takes more texts for numbers than PyYAML does


class _Dumper(yaml.SafeDumper):
    """Writes YAML 1.2, as it is read: ``on`` and ``no`` are texts."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        """Indent the items of lists too."""
        super().increase_indent(flow, indentless=False)


_Dumper.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:bool" or letter in "tTfF"]
    for letter, pairs in yaml.SafeDumper.yaml_implicit_resolvers.items()
}


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    long = len(text) > _LONG and "\n" not in text and text == " ".join(text.split(" ")).strip()
    style = "'" if _NUMBER.match(text) else ">" if long else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def short_document(document: DocumentModel) -> dict[str, Any]:
    """Return the entries of a document without its defaults."""
    return document.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def yaml_text(document: DocumentModel) -> str:
    """Return the document as YAML."""
    text: str = yaml.dump(
        short_document(document),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=_WIDTH,
        default_flow_style=False,
    )
    return text
