"""Redis URLs: their parts, what is refused, and that a password is never told."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from tests.servers.certificates import Certificates

from stratacache.errors import SettingsError
from stratacache.stores.redis_url import RedisPlace, parse_redis_url


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://h", RedisPlace("standalone", (("h", 6379),))),
        ("redis://h:1/", RedisPlace("standalone", (("h", 1),))),
        ("redis://[::1]", RedisPlace("standalone", (("::1", 6379),))),
        ("redis://[::1]:7", RedisPlace("standalone", (("::1", 7),))),
        (
            "redis://me:p%40%2F%3A%25@h/3?prefix=x",
            RedisPlace("standalone", (("h", 6379),), user="me", password="p@/:%", database=3, prefix="x"),
        ),
        ("redis://:p@h", RedisPlace("standalone", (("h", 6379),), password="p")),
        ("redis+cluster://a:1,b", RedisPlace("cluster", (("a", 1), ("b", 6379)))),
        (
            "redis+sentinel://me:p@a,b:2/main/4?sentinel_password=q",
            RedisPlace(
                "sentinel",
                (("a", 26379), ("b", 2)),
                user="me",
                password="p",
                master="main",
                database=4,
                sentinel_password="q",
            ),
        ),
    ],
)
def test_its_parts(url: str, place: RedisPlace) -> None:
    assert parse_redis_url(url) == place


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_tls_verifies_whom_it_talks_to(scheme: str, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    options = f"ca={files.ca}&cert={files.client_cert}&key={files.client_key}&tls_name=other"
    place = parse_redis_url(f"{scheme}://h/{'main' if 'sentinel' in scheme else ''}?{options}")
    assert place.tls is not None
    assert place.tls.verify_mode == ssl.CERT_REQUIRED
    assert place.tls.check_hostname
    assert place.tls_name == "other"


def test_without_the_s_nothing_is_dialled_with_tls() -> None:
    assert parse_redis_url("redis://h").tls is None


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://:hunter2@h:port", "host:port"),
        ("redis://:hunter2@h:70000", "host:port"),
        ("redis://:hunter2@", "host:port"),
        ("redis+cluster://:hunter2@a,,b", "host:port"),
        ("redis://:hunter2@h/hunter2", "number of a database"),
        ("redis+cluster://:hunter2@h/1", "database 0 only"),
        ("redis+sentinel://:hunter2@h", "name the master"),
        ("redis://:hunter2@h?ssl=hunter2", "option that it does not know"),
        ("redis://:hunter2@h?tls_name=hunter2", "option that it does not know"),
        ("rediss://:hunter2@h?ca=/nowhere/ca.pem", "ca=/nowhere/ca.pem: No such file"),
        ("rediss://:hunter2@h?cert=/dev/null&key=/dev/null", "PEM"),
        ("redis+ring://:hunter2@h", "redis://"),
    ],
)
def test_a_wrong_one_is_refused_without_being_repeated(url: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told) as refused:
        parse_redis_url(url)
    assert "hunter2" not in str(refused.value)
