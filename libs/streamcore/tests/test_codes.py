"""A code is a plain value to programs, and cannot be declared without its two sentences."""

from __future__ import annotations

import pickle

import orjson
import pytest

from streamcore.codes import Code, ExitCode
from streamcore.decode.reject_codes import RejectCode


def test_a_code_equals_its_value() -> None:
    code = RejectCode("not_json")
    assert code is RejectCode.NOT_JSON
    assert (str(code), code.value) == ("not_json", "not_json")
    assert orjson.dumps({"code": code}) == b'{"code":"not_json"}'
    assert pickle.loads(pickle.dumps(code)) is code


@pytest.mark.parametrize("sentences", [(), ("It occurs.",), ("", "Do this."), ("It occurs.", "")])
def test_a_code_without_meaning_and_remedy_cannot_be_declared(sentences: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="two sentences"):

        class _Codes(Code):
            ONE = ("one", *sentences)

    with pytest.raises(TypeError, match="two sentences"):

        class _ExitCodes(ExitCode):
            ONE = (1, *sentences)
