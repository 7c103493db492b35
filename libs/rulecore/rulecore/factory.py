"""Creates rules kernels on the workers. Importing this module does not import the kernel, which takes time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rulecore.settings import RulesConfig

if TYPE_CHECKING:
    from streamcore.kernel import Kernel


@dataclass(frozen=True, slots=True)
class RulesFactory(RulesConfig):
    """A configuration that creates the kernel of a shard (``KernelFactory``); it is picklable."""

    def __call__(self) -> Kernel:
        from rulecore.kernel import RulesKernel

        return RulesKernel(self)
