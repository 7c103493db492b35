"""Who gets in where others can reach the console: a login by a real OpenID provider, or a token that it has signed.

No Kafka: only what is answered before an app is read.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import requests
from joserfc.jwk import RSAKey
from starlette.responses import PlainTextResponse

from headgate.main import run
from headgate.web.access.guard import Guard
from headgate.web.access.identity import Authenticator
from headgate.web.access.login import OidcLogin
from headgate.web.access.rights import ConsoleSession, Grant, find_grants
from headgate.web.access.roles import Role
from headgate.web.access.sessions import Sessions
from headgate.web.access.settings import AccessSettings, GrantSettings
from headgate.web.access.tokens import Provider, TokenVerifier
from headgate.web.context import Console
from headgate.web.problems import ProblemError
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
from streamcore.kafka.settings import KafkaSettings
from tests.harness.servers.console import Answer, ConsoleClient
from tests.harness.servers.oidc_provider import AUDIENCE, CLIENT, SECRET, OidcProvider, serve_provider

GRANTS = [
    {"role": "viewer", "groups": ["*"]},
    {"role": "publisher", "groups": ["fraud"], "apps": ["shop"], "tags": ["payments"]},
    {"role": "admin", "subjects": ["ada"]},
]
APPS = "/api/v1/apps"
#: Nobody listens there.
AWAY = KafkaSettings("127.0.0.1:1", request_timeout_ms=200)
#: A route without Kafka behind it, and one that needs more than a viewer.
SEEN, WRITTEN = APPS, f"{APPS}/shop/rules/r/mode"


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with serve_provider() as found:
        yield found


@dataclass
class Reached:
    """A console that others can reach, and how."""

    server: ConsoleServer
    provider: OidcProvider

    @property
    def client(self) -> ConsoleClient:
        return ConsoleClient(self.server.address)

    def bearer(self, token: str, path: str = SEEN, **headers: str | None) -> Answer:
        return self.client.get(path, Authorization=f"Bearer {token}", **headers)

    def begin(self, path: str = "/login") -> tuple[str, str]:
        """Return the provider's address and the cookie of a login that begins."""
        begun = self.client.get(path)
        assert begun.status == 303
        return begun.headers["location"], begun.headers["set-cookie"].partition(";")[0]

    def callback(self, address: str) -> str:
        """Let the provider answer; return the path of the callback."""
        answer = requests.get(address, allow_redirects=False, timeout=10)
        assert answer.status_code == 303
        back = urlsplit(answer.headers["Location"])
        return f"{back.path}?{back.query}"


@pytest.fixture(scope="module")
def reached(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    secret: Path = tmp_path_factory.mktemp("secret") / "client"
    secret.write_text(SECRET + "\n")
    probe = ConsoleServer(ConsoleSettings(kafka=AWAY, apps=({"name": "shop"},), port=0))  # type: ignore[arg-type]
    port = int(probe.address.rpartition(":")[2])
    probe._socket.close()
    issuer = {"issuer": provider.address}
    access = {
        "public_address": f"http://127.0.0.1:{port}",
        "login": {**issuer, "client_id": CLIENT, "client_secret_file": secret},
        "tokens": {**issuer, "audience": AUDIENCE},
        "grants": GRANTS,
    }
    document = {"kafka": AWAY, "apps": [{"name": "shop"}, {"name": "lab"}], "port": port}
    with running(ConsoleServer(ConsoleSettings.model_validate({**document, "access": access}))) as server:
        yield Reached(server, provider)


@pytest.fixture(autouse=True)
def _good_again(provider: OidcProvider) -> None:
    provider.person, provider.changes, provider.signer = {"sub": "alice", "groups": ["fraud"]}, {}, None


def log_in(reached: Reached) -> ConsoleClient:
    address, cookie = reached.begin()
    answer = reached.client.get(reached.callback(address), Cookie=cookie)
    assert answer.status == 200, answer.text
    return ConsoleClient(reached.server.address, {"Cookie": answer.headers["set-cookie"].partition(";")[0]})


def test_a_person_logs_in_and_out(reached: Reached) -> None:
    page = reached.client.get("/apps/shop/rules")
    assert (page.status, page.headers["location"]) == (303, "/login?next=/apps/shop/rules")
    address, cookie = reached.begin(page.headers["location"])
    asked = parse_qs(urlsplit(address).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert len(asked["state"][0]) >= 16
    assert len(asked["nonce"][0]) >= 32
    path = reached.callback(address)
    answer = reached.client.get(path, Cookie=cookie)
    assert (answer.status, "url=/apps/shop/rules" in answer.text) == (200, True)
    session = answer.headers["set-cookie"]
    assert "httponly" in session.lower()
    assert "samesite=strict" in session.lower()
    person = ConsoleClient(reached.server.address, {"Cookie": session.partition(";")[0]})
    assert person.get(SEEN).json == ["shop", "lab"]
    assert reached.client.get(path, Cookie=cookie).status == 401, "a code counts once"
    assert person.send("POST", "/logout", b"", {"Origin": "http://evil.example"}).status == 403
    assert person.send("POST", "/logout", b"", {"Origin": reached.server.address}).status == 303
    assert person.get(SEEN).status == 401


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/\\evil.example", "/x\r\nX: y"])
def test_a_login_leads_to_pages_of_the_console_only(reached: Reached, after: str) -> None:
    address, cookie = reached.begin(f"/login?next={quote(after, safe='')}")
    answer = reached.client.get(reached.callback(address), Cookie=cookie)
    assert 'url=/"' in answer.text


def test_state_and_browser_of_a_login_have_to_be_those_that_began_it(reached: Reached) -> None:
    address, cookie = reached.begin()
    other = reached.begin()[1]
    path = reached.callback(address)
    forged = path.replace("state=", "state=x")
    assert reached.client.get(forged, Cookie=cookie).status == 401
    assert reached.client.get(path, Cookie=other).status == 401, "another browser's login (CSRF)"
    assert reached.client.get(path).status == 401
    address, cookie = reached.begin()
    state = parse_qs(urlsplit(address).query)["state"][0]
    for wrong in (f"state={state}&code=none", f"state={state}&error=access_denied", "code=x", ""):
        assert reached.client.get(f"/login/callback?{wrong}", Cookie=cookie).status == 401


WRONG: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "x"},
    "no nonce": {"nonce": None},
    "another issuer": {"iss": "https://evil.example"},
    "another audience": {"aud": "other"},
    "no audience": {"aud": None},
    "for several, given to another": {"aud": [CLIENT, "other"], "azp": "other"},
    "expired": {"exp": int(time.time()) - 120},
    "without end": {"exp": None},
    "from the future": {"iat": int(time.time()) + 3600},
    "not yet": {"nbf": int(time.time()) + 3600},
    "nobody": {"sub": None},
    "a name with a blank": {"sub": "a b"},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_a_wrong_token_opens_no_session(reached: Reached, claims: dict[str, Any]) -> None:
    reached.provider.changes = claims
    address, cookie = reached.begin()
    answer = reached.client.get(reached.callback(address), Cookie=cookie)
    assert (answer.status, "headgate_session" in str(answer.headers)) == (401, False)


def test_a_token_that_another_key_has_signed_opens_no_session(reached: Reached) -> None:
    reached.provider.signer = RSAKey.generate_key(2048)
    address, cookie = reached.begin()
    assert reached.client.get(reached.callback(address), Cookie=cookie).status == 401


def test_tokens_of_programs(reached: Reached) -> None:
    provider = reached.provider
    assert reached.bearer(provider.token()).json == ["shop", "lab"]
    for claims in ({"aud": CLIENT}, {"aud": "x"}, {"iss": "x"}, {"exp": 1}, {"exp": "9999999999"}, {"sub": None}):
        assert reached.bearer(provider.token(claims)).status == 401, claims
    assert reached.bearer(provider.token(key=RSAKey.generate_key(2048))).status == 401, "forged"
    assert reached.bearer(provider.unsigned({"sub": "ada"})).status == 401, "alg none"
    public = provider.key.as_pem(private=False)
    assert reached.bearer(provider.unsigned({"sub": "ada"}, "HS256", public)).status == 401, "HMAC by the public key"
    good = provider.token()
    head, body, signature = good.split(".")
    other = provider.token({"sub": "ada"}).split(".")[1]
    for broken in (
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}",
        "x.y.z",
        "",
        good + "x" * 40_000,
    ):
        assert reached.bearer(broken).status in (401, 431), broken[:20]
    assert reached.bearer(provider.token(jku="http://evil.example/keys")).status == 200, "keys are the issuer's alone"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Forwarded-User": "ada", "X-Forwarded-Email": "ada@example.org", "X-Auth-Request-User": "ada"},
        {"X-Forwarded-Access-Token": "ada"},
        {"Remote-User": "ada"},
        {"Authorization": "Basic YWRhOmFkYQ=="},
        {"Authorization": "Bearer ada"},
    ],
)
def test_a_bare_header_is_no_login(reached: Reached, headers: dict[str, str]) -> None:
    client = ConsoleClient(reached.server.address, headers)
    assert client.get(SEEN).status == 401
    assert client.get("/").status in (303, 401)
    assert client.get("/open?token=x").status in (303, 401)


def test_another_host_is_refused(reached: Reached) -> None:
    port = reached.server.address.rpartition(":")[2]
    for host in ("evil.example", f"evil.example:{port}", f"localhost:{port}"):
        assert reached.bearer(reached.provider.token(), Host=host).status == 421
        assert reached.client.get("/login", Host=host).status == 421
    assert reached.client.get("/healthz", Host="10.0.0.7:8808").text == "ok"


def test_a_change_from_another_origin_is_refused_by_cookie_and_by_the_token_of_a_proxy(reached: Reached) -> None:
    person, token = log_in(reached), f"Bearer {reached.provider.token()}"
    for origin in ("http://evil.example", "null"):
        assert person.json("POST", WRITTEN, {"mode": "paused"}, Origin=origin).json["code"] == "wrong_origin"
        by_proxy = reached.client.json("POST", WRITTEN, {"mode": "paused"}, Origin=origin, Authorization=token)
        assert by_proxy.json["code"] == "wrong_origin"
    assert person.json("POST", WRITTEN, {"mode": "paused"}).json["code"] == "wrong_origin"


def test_no_page_can_be_framed_and_no_answer_is_kept(reached: Reached) -> None:
    for answer in (reached.client.get("/login"), reached.client.get(SEEN), log_in(reached).get(SEEN)):
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_role_holds_in_its_apps(reached: Reached) -> None:
    token, paused = f"Bearer {reached.provider.token()}", {"mode": "paused"}
    in_lab = reached.client.json("POST", f"{APPS}/lab/rules/r/mode", paused, Authorization=token)
    assert (in_lab.status, in_lab.json["code"]) == (403, "not_allowed")
    in_shop = reached.client.json("POST", WRITTEN, paused, Authorization=token)
    assert in_shop.status == 503, "the role is there; Kafka is not"


def test_a_person_without_a_grant_gets_nothing(provider: OidcProvider) -> None:
    access = AccessSettings.model_validate(
        {
            "public_address": "https://c.example",
            "tokens": {"issuer": provider.address, "audience": AUDIENCE},
            "grants": [{"role": "viewer", "groups": ["fraud"]}],
        }
    )
    assert find_grants(access.grants, "bob", ["other"]) == ()
    assert find_grants(access.grants, "bob", ["fraud"]) == (Grant(Role.VIEWER),)
    for wrong in ({"public_address": "http://c.example"}, {"public_address": "https://c/x"}, {"tokens": None}):
        with pytest.raises(ValueError, match=r"https|path|no login"):
            AccessSettings.model_validate({**access.model_dump(), **wrong})
    with pytest.raises(ValueError, match="groups or subjects"):
        GrantSettings.model_validate({"role": "admin"})


def test_scopes_by_app_tag_and_owner() -> None:
    grants = (
        Grant(Role.VIEWER),
        Grant(Role.PUBLISHER, ("shop",), ("payments",)),
        Grant(Role.APPROVER, owners=("risk",)),
    )
    session = ConsoleSession("alice", grants)
    assert session.may_change(Role.PUBLISHER, "shop", ["payments", "x"], "me")
    assert not session.may_change(Role.PUBLISHER, "shop", ["x"], "me")
    assert not session.may_change(Role.PUBLISHER, "lab", ["payments"], "me")
    assert session.may_change(Role.APPROVER, "lab", [], "risk")
    assert not session.may_change(Role.ADMIN, "lab", [], "risk")
    assert (session.role_in("lab"), session.role_in("shop")) == (Role.APPROVER, Role.APPROVER)
    assert not ConsoleSession("bob", grants[1:2]).may(Role.VIEWER, "lab")


def test_new_keys_are_fetched_when_a_token_names_them_and_not_more_often(provider: OidcProvider) -> None:
    now = [time.time()]
    verifier = TokenVerifier(Provider(provider.address, lambda: now[0]), AUDIENCE, lambda: now[0])
    verifier.verify(provider.token())
    before = provider.key_requests
    provider.rotate()
    with pytest.raises(ProblemError, match="no key"):
        verifier.verify(provider.token())
    assert provider.key_requests == before, "not within 30 s of the last time"
    now[0] += 31
    assert verifier.verify(provider.token())["sub"] == "alice"
    assert provider.key_requests == before + 1


def test_a_provider_that_fails_is_not_asked_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_provider() as away:
        asked, now = list[str](), [1_000.0]
        provider = Provider(away.address, lambda: now[0])

        def fail(_self: OidcProvider, _method: str, path: str, *_rest: object) -> tuple[int, object, str]:
            asked.append(path)
            return 500, {}, ""

        monkeypatch.setattr(OidcProvider, "answer", fail)
        for _ in range(3):
            with pytest.raises(ProblemError, match="does not answer"):
                provider.keys()
            with pytest.raises(ProblemError, match="does not answer"):
                provider.document()
        assert len(asked) == 1
        now[0] += 11
        with pytest.raises(ProblemError, match="does not answer"):
            provider.keys(again=True)
        assert len(asked) == 2


def test_one_person_ends_nobody_elses_session() -> None:
    sessions = Sessions("me", Role.ADMIN, 3, 1)
    bob = sessions.open(ConsoleSession("bob", (), issuer="i"))
    alice = [sessions.open(ConsoleSession("alice", (), issuer="i")) for _ in range(5)]
    assert sessions.by_cookie(bob) is not None
    assert [sessions.by_cookie(one) is not None for one in alice] == [False, False, False, True, True]
    carol = sessions.open(ConsoleSession("carol", (), issuer="i"))
    assert sessions.by_cookie(carol) is not None
    assert sessions.by_cookie(bob) is None, "the oldest of all"


def test_logins_that_never_end_take_no_memory_and_end_no_other(provider: OidcProvider) -> None:
    access = AccessSettings.model_validate(
        {
            "public_address": "https://c.example",
            "login": {"issuer": provider.address, "client_id": CLIENT},
            "grants": GRANTS,
        }
    )
    assert access.login is not None
    now = [1_000.0]
    login = OidcLogin(access, access.login, lambda: now[0])
    address, sealed = login.begin("/apps/shop")
    before = {name: repr(one) for name, one in vars(login).items()}
    assert len(login.begin("/" + "x" * 100_000)[1]) < 4_000, "a browser keeps the cookie"
    state = parse_qs(urlsplit(address).query)["state"][0]
    assert {name: repr(one) for name, one in vars(login).items()} == before
    for secret in (state, address.partition("code_challenge=")[2]):
        assert secret not in sealed
    with pytest.raises(ProblemError, match="refuses the login"):
        login.finish({"state": state}, sealed)
    for wrong in (sealed[:-1], sealed + "x", "", "a.b.c.d.e", "é"):
        with pytest.raises(ProblemError, match="not begun here"):
            login.finish({"state": state}, wrong)
    with pytest.raises(ProblemError, match="another browser"):
        login.finish({"state": "é"}, sealed)
    with pytest.raises(ProblemError, match="not begun here"):
        OidcLogin(access, access.login, lambda: now[0]).finish({"state": state}, sealed)
    now[0] += 600
    with pytest.raises(ProblemError, match="took too long"):
        login.finish({"state": state}, sealed)


def set_cookie(guard: Guard, method: str, path: str, headers: dict[str, str]) -> str:
    """Return the cookie that the guard of https://c.example sets."""
    sent: list[MutableMapping[str, Any]] = []
    given = {"Host": "c.example", "Origin": "https://c.example", **headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": raw}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    # A browser's tests in the same process have a loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(guard(scope, receive, send))).result()
    return str(dict(sent[0]["headers"])[b"set-cookie"].decode())


def test_with_https_no_other_host_sets_a_cookie_of_the_console(provider: OidcProvider) -> None:
    access = {
        "public_address": "https://c.example",
        "login": {"issuer": provider.address, "client_id": CLIENT},
        "grants": GRANTS,
    }
    sessions = Sessions("me", Role.ADMIN, 3, 1)
    guard = Guard(PlainTextResponse("passed"), sessions, (), 1, Authenticator(AccessSettings.model_validate(access)))
    own = {"Cookie": f"__Host-{sessions.cookie}={sessions.open(ConsoleSession('ada', ()))}"}
    begun, ended = (set_cookie(guard, method, path, own) for method, path in (("GET", "/login"), ("POST", "/logout")))
    assert begun.startswith("__Host-headgate_login=")
    assert ended.startswith(f"__Host-{sessions.cookie}=")
    for cookie in (begun, ended):
        entries = {one.strip().lower() for one in cookie.split(";")[1:]}
        assert {"secure", "path=/", "httponly"} <= entries, cookie
        assert not any(one.startswith("domain") for one in entries)


def test_a_token_file_that_would_bypass_the_grants_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        access = {
            "public_address": "https://c.example",
            "tokens": {"issuer": "https://id.example", "audience": AUDIENCE},
            "grants": GRANTS,
        }
        document = {"kafka": {"bootstrap": "127.0.0.1:1"}, "apps": [{"name": "shop"}], "access": access}
        settings, token = tmp_path / "console.yaml", tmp_path / "token"
        settings.write_text(json.dumps({**document, "port": taken.getsockname()[1]}))
        assert run(["console", "--settings", str(settings), "--token-file", str(token)]) != 0
    assert "whatever the grants" in capsys.readouterr().err
    assert not token.exists()


def test_back_tests_take_no_place_of_explanations_and_one_person_has_one() -> None:
    console = Console(ConsoleSettings(kafka=KafkaSettings("127.0.0.1:1"), apps=(ConsoleApp(name="shop"),)))
    alice, bob, carol = (ConsoleSession(name, ()) for name in ("alice", "bob", "carol"))
    with console.backtesting(alice):
        with pytest.raises(ProblemError, match="of alice runs already"), console.backtesting(alice):
            pass
        with console.backtesting(bob):
            with pytest.raises(ProblemError, match="2 back-tests run already"), console.backtesting(carol):
                pass
            with console.working(), console.working(), console.working():
                pass
    with console.backtesting(alice):
        pass
    console.close()


def test_a_session_ends_at_its_time() -> None:
    now = [1_000.0]
    sessions = Sessions("me", Role.ADMIN, 2, 1, lambda: now[0])
    secret = sessions.open(ConsoleSession("alice", (), ends_s=1_060.0))
    assert sessions.by_cookie(secret) is not None
    now[0] = 1_060.0
    assert sessions.by_cookie(secret) is None
