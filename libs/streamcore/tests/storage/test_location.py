"""Addresses of checkpoints: a path or a key of a bucket, joined alike, and the Spark options for a bucket."""

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
def test_paths_and_object_paths_join_names_alike(root: str) -> None:
    place = location(f"{root}/a/b")
    assert str(place / "c") == f"{root}/a/b/c"
    assert str(place.parent) == f"{root}/a"
    assert str(place.with_name("e2")) == f"{root}/a/e2"
    assert (place / "c").name == "c"
    assert location(place) == place == location(str(place))


def test_superfluous_slashes_do_not_change_an_address() -> None:
    assert location("s3://bucket//a/") == location("s3://bucket/a") == ObjectPath("s3://bucket/a")


def test_spark_addresses_have_the_scheme_of_its_client() -> None:
    assert for_spark(Path("/x/spark")) == "/x/spark"
    assert for_spark(ObjectPath("s3://bucket/x/spark")) == "s3a://bucket/x/spark"


def test_the_operating_system_rejects_an_object_path() -> None:
    with pytest.raises(TypeError):
        os.listdir(ObjectPath("s3://bucket/x"))  # type: ignore[call-overload]


def test_a_bucket_has_no_parent() -> None:
    with pytest.raises(ConfigError, match="write s3://bucket/prefix"):
        _ = ObjectPath("s3://bucket").parent


def test_documents_accept_paths_and_object_paths_and_serialise_them_unchanged() -> None:
    adapter: TypeAdapter[Location] = TypeAdapter(LocationField)
    for text, kind in (("state/e1", Path), ("s3://bucket/shop/e1", ObjectPath)):
        found = adapter.validate_python(text)
        assert isinstance(found, kind)
        assert adapter.dump_python(found, mode="json") == text
    for wrong in ("", 7, "s3://"):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_savepoints_are_beside_the_checkpoint_in_folders_and_buckets() -> None:
    document = {"app": "shop", "kafka": {"bootstrap": "nowhere:1"}}
    settings = ServiceSettings.model_validate(document | {"checkpoint": "s3://bucket/shop/e1"})
    assert settings.savepoints_root == "s3://bucket/shop/savepoints"
    assert settings.spark_session.objects
    assert not ServiceSettings.model_validate(document | {"checkpoint": "/x/e1"}).spark_session.objects


def test_spark_options_describe_a_bucket_only_if_it_is_used_and_contain_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_SESSION_TOKEN": "a-token"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": "http://there:7", "AWS_REGION": "eu-1"}.items():
        monkeypatch.setenv(name, value)
    spark_options = _options(SparkSettings(None, objects=True))
    assert spark_options["spark.hadoop.fs.s3a.endpoint"] == "http://there:7"
    assert spark_options["spark.hadoop.fs.s3a.endpoint.region"] == "eu-1"
    assert spark_options["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert not set(keys.values()) & set(spark_options.values())
    assert not [name for name in _options(SparkSettings(None)) if "s3a" in name]


def test_the_client_chooses_the_endpoints_of_amazon() -> None:
    assert not {"spark.hadoop.fs.s3a.endpoint", "spark.hadoop.fs.s3a.path.style.access"} & objects.options({}).keys()
