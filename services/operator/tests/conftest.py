"""The fixtures of ``tests.harness.operator.fixtures``: mypy takes two files ``tests/conftest.py`` for one."""

from tests.harness.operator.fixtures import _kubeconfig, _kubelet, _namespace, _rest

__all__ = ["_kubeconfig", "_kubelet", "_namespace", "_rest"]
