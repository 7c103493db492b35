"""The settings of the ETL app as one document, checked before anything starts.

``headgate_etl.documents`` defines the form; ``build_plan`` checks names and expressions when a document is read.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from headgate_etl.documents import EtlDocument


class EtlSettings(EtlDocument):
    """Settings of the ETL app."""

    preload: ClassVar[tuple[str, ...]] = (
        "headgate_etl.derive_with_lists",
        "headgate_etl.routing",
        "streamcore.topology.kernel",
    )

    @model_validator(mode="after")
    def _check_plan(self) -> Self:
        """Build the plan, which raises ``ConfigError`` with everything that is wrong in the document."""
        from headgate_etl.plan import build_plan

        build_plan(self)
        return self
