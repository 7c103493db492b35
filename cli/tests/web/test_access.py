"""Nobody gets in without a session, from another host or origin, or beyond a role."""

from __future__ import annotations

import http.client
import time
from urllib.parse import urlsplit

import pytest
from fastapi.routing import APIRoute

from headgate.web.access.roles import ROUTES, Role
from headgate.web.application import PUBLIC, ROUTERS, build_api
from headgate.web.settings import ConsoleSettings
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_scene import Shown
from tests.harness.servers.console import ConsoleClient, browser


def routes() -> set[tuple[str, str]]:
    found = {
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    own = {("GET", str(getattr(route, "path", None))) for route in build_api(None).routes}
    return found | {one for one in own if one[1] not in (*PUBLIC, "None")}


def test_every_route_has_a_role_and_every_role_a_route() -> None:
    assert routes() == set(ROUTES)


def test_what_each_role_may_do() -> None:
    asked = {role: {needed for needed in Role if role.includes(needed)} for role in Role}
    assert asked[Role.VIEWER] == {Role.VIEWER}
    assert asked[Role.AUTHOR] == {Role.VIEWER, Role.AUTHOR}
    assert asked[Role.PUBLISHER] == {Role.VIEWER, Role.AUTHOR, Role.PUBLISHER}
    assert asked[Role.APPROVER] == {Role.VIEWER, Role.AUTHOR, Role.PUBLISHER, Role.APPROVER}
    assert asked[Role.OPERATOR] == {Role.VIEWER, Role.OPERATOR}
    assert asked[Role.ADMIN] == set(Role)
    changing = {route for route in ROUTES if route[0] != "GET"}
    assert all(ROUTES[route] is not Role.VIEWER for route in changing)


def test_the_console_listens_on_this_machine_alone() -> None:
    for host in ("0.0.0.0", "192.168.1.1", "example.org"):
        with pytest.raises(ValueError, match="others reach it there"):
            ConsoleSettings.model_validate({"kafka": KafkaSettings("h:1"), "apps": [{"name": "a"}], "host": host})


@pytest.mark.kafka
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Forwarded-User": "admin", "X-Forwarded-Email": "a@b"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Cookie": "headgate_session=x; other"},
    ],
)
def test_a_request_without_a_session_gets_nothing(shown: Shown, headers: dict[str, str]) -> None:
    client = ConsoleClient(shown.server.address, headers)
    for path in ("/", f"{shown.api}/rules", f"{shown.api}/alerts/live", "/api/v1/openapi.json"):
        answer = client.get(path)
        assert (answer.status, shown.app.name in answer.text) == (401, False), path


@pytest.mark.kafka
def test_the_printed_address_opens_one_session_and_a_secret_of_a_cookie_is_no_token(shown: Shown) -> None:
    client = ConsoleClient(shown.server.address)
    path = shown.server.open_address().removeprefix(shown.server.address)
    opened = client.get(path)
    cookie = opened.headers["set-cookie"]
    assert (opened.status, opened.headers["location"]) == (303, "/")
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert client.get(path).status == 401, "a used address"
    secret = cookie.partition("=")[2].partition(";")[0]
    assert client.get("/", Authorization=f"Bearer {secret}").status == 401
    token = shown.program.headers["Authorization"].partition(" ")[2]
    assert client.get("/", Cookie=f"{cookie.partition('=')[0]}={token}").status == 401


@pytest.mark.kafka
def test_live_alerts_end_with_the_session(shown: Shown) -> None:
    client = browser(shown.server)
    where = urlsplit(shown.server.address)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 0, timeout=10)
    try:
        connection.request("GET", f"{shown.api}/alerts/live", headers={**client.headers, "Host": where.netloc})
        live = connection.getresponse()
        assert (live.status, live.readline()) == (200, b"retry: 2000\n")
        assert client.send("POST", "/logout", b"", {"Origin": shown.server.address}).status == 303
        deadline = time.monotonic() + 8
        while (line := live.readline()) and time.monotonic() < deadline:
            pass
        assert line == b"", "it goes on without a session"
    finally:
        connection.close()


@pytest.mark.kafka
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "", None])
def test_another_host_is_refused_whatever_the_session(shown: Shown, host: str | None) -> None:
    for client in (shown.browser, shown.program):
        assert client.get(f"{shown.api}/rules", Host=host).status in (400, 421)


@pytest.mark.kafka
@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1"])
def test_a_change_by_cookie_from_another_origin_is_refused(shown: Shown, origin: str | None) -> None:
    path = f"{shown.pages}/rules/seen/mode"
    before = shown.program.get(f"{shown.api}/rules/seen").headers["etag"]
    refused = shown.browser.form(path, {"mode": "paused", "etag": before}, Origin=origin)
    assert refused.status == 403
    assert shown.program.get(f"{shown.api}/rules/seen").headers["etag"] == before


@pytest.mark.kafka
def test_a_body_that_is_too_large_is_refused_whatever_length_it_announces(shown: Shown) -> None:
    large = b'{"yaml": "' + b"x" * 1_100_000 + b'"}'
    path, kind = f"{shown.api}/rule-checks", {"Content-Type": "application/json"}
    assert shown.program.send("POST", path, large[:100], {**kind, "Content-Length": "2000000"}).status == 413
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large)
    more = {**kind, "Content-Length": None, "Transfer-Encoding": "chunked"}
    assert shown.program.send("POST", path, chunked, more).status in (400, 413)
