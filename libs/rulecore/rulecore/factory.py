"""Make rules kernels from a configuration that travels to the workers: the kernel is imported where one is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rulecore.settings import RulesConfig

if TYPE_CHECKING:
    from streamcore.kernel import Kernel


@dataclass(frozen=True, slots=True)
class RulesFactory(RulesConfig):
    """Makes the kernel of a shard from the configuration that it is."""

    def __call__(self) -> Kernel:
        from rulecore.kernel import RulesKernel

        return RulesKernel(self)
