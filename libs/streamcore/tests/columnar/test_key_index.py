"""Keys of windows to numbers: few values and many go different ways to the same numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.columnar import key_index as keys
from streamcore.columnar.key_index import KeyIndex

Shape = tuple[str, pl.DataType, st.SearchStrategy[object]]
SHAPES: tuple[Shape, ...] = (
    ("s", pl.String(), st.none() | st.text(max_size=3)),
    ("n", pl.Int64(), st.none() | st.integers(-3, 3)),
    ("b", pl.Boolean(), st.none() | st.booleans()),
    ("f", pl.Float64(), st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
)


@settings(max_examples=50, deadline=None)
@given(st.data(), st.lists(st.sampled_from(SHAPES), min_size=1, unique_by=lambda shape: shape[0]))
def test_few_keys_get_the_slots_that_they_get_among_many(data: st.DataObject, shapes: list[Shape]) -> None:
    height = data.draw(st.integers(0, 12))
    dtypes = {name: dtype for name, dtype, _ in shapes}
    columns = {name: data.draw(st.lists(v, min_size=height, max_size=height)) for name, _, v in shapes}
    frame = pl.DataFrame(columns, schema=dtypes)
    few = KeyIndex(dtypes).assign(frame)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "_FEW", -1)
        many = KeyIndex(dtypes).assign(frame)
    assert np.array_equal(few, many)
