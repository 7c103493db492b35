"""Addresses of checkpoints: a path or a key of a bucket, put together alike, and Spark's options for a bucket."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from streamcore.errors import ConfigError
from streamcore.service.config.settings import ServiceSettings
from streamcore.spark import s3a as objects
from streamcore.spark.session import SparkSettings, _options
from streamcore.storage.location import Location, LocationField, ObjectPath, for_spark, location


@pytest.mark.parametrize("root", ["/x", "s3://bucket"])
def test_names_are_put_together_alike(root: str) -> None:
    place = location(f"{root}/a/b")
    assert str(place / "c") == f"{root}/a/b/c"
    assert str(place.parent) == f"{root}/a"
    assert str(place.with_name("e2")) == f"{root}/a/e2"
    assert (place / "c").name == "c"
    assert location(place) == place == location(str(place))


def test_slashes_too_many_make_no_other_place() -> None:
    assert location("s3://bucket//a/") == location("s3://bucket/a") == ObjectPath("s3://bucket/a")


def test_spark_is_told_the_name_that_its_client_goes_by() -> None:
    assert for_spark(Path("/x/spark")) == "/x/spark"
    assert for_spark(ObjectPath("s3://bucket/x/spark")) == "s3a://bucket/x/spark"


def test_an_address_in_a_bucket_is_nothing_to_the_operating_system() -> None:
    with pytest.raises(TypeError):
        os.listdir(ObjectPath("s3://bucket/x"))  # type: ignore[call-overload]


def test_above_a_bucket_there_is_nothing() -> None:
    with pytest.raises(ConfigError, match="write s3://bucket/prefix"):
        _ = ObjectPath("s3://bucket").parent


def test_documents_take_both_and_give_them_back_as_written() -> None:
    adapter: TypeAdapter[Location] = TypeAdapter(LocationField)
    for text, kind in (("state/e1", Path), ("s3://bucket/shop/e1", ObjectPath)):
        found = adapter.validate_python(text)
        assert isinstance(found, kind)
        assert adapter.dump_python(found, mode="json") == text
    for wrong in ("", 7, "s3://"):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_savepoints_are_beside_a_checkpoint_wherever_that_is() -> None:
    said = {"app": "shop", "kafka": {"bootstrap": "nowhere:1"}}
    settings = ServiceSettings.model_validate(said | {"checkpoint": "s3://bucket/shop/e1"})
    assert settings.savepoints_root == "s3://bucket/shop/savepoints"
    assert settings.spark_session.objects
    assert not ServiceSettings.model_validate(said | {"checkpoint": "/x/e1"}).spark_session.objects


def test_spark_is_told_of_a_bucket_only_where_there_is_one_and_of_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_SESSION_TOKEN": "a-token"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": "http://there:7", "AWS_REGION": "eu-1"}.items():
        monkeypatch.setenv(name, value)
    told = _options(SparkSettings(None, objects=True))
    assert told["spark.hadoop.fs.s3a.endpoint"] == "http://there:7"
    assert told["spark.hadoop.fs.s3a.endpoint.region"] == "eu-1"
    assert told["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert not set(keys.values()) & set(told.values())
    assert not [name for name in _options(SparkSettings(None)) if "s3a" in name]


def test_amazons_own_addresses_are_left_to_the_client() -> None:
    assert not {"spark.hadoop.fs.s3a.endpoint", "spark.hadoop.fs.s3a.path.style.access"} & objects.options({}).keys()
