"""Behaviour of customers and fraudsters as scripts.

A script is a list of ``ScriptedEvent``: each event with its position in the block. It is a pure function of the random
generator and the settings that it is given.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.demo.shop.settings import EVENTS_PER_BLOCK, Document, ShopSettings

#: The number of products: p0, p1 and so on, the most popular first.
PRODUCTS: Final = 5_000
COUNTRIES: Final = ("GB", "DE", "FR", "NL", "ES", "IT", "PL", "IE")
_CURRENCY: Final = {"GB": "GBP", "PL": "PLN"}


@dataclass(frozen=True, slots=True)
class ScriptedEvent:
    """One event of a script. ``position``: in the block, in records; a fraction orders events between two records.
    ``fields``: without id and time."""

    position: float
    fields: Document


@dataclass(frozen=True, slots=True)
class Person:
    """A customer, with the same attributes in every block. Number 0 is the most active one."""

    number: int

    @property
    def user_id(self) -> str:
        return f"u{self.number}"

    @property
    def country(self) -> str:
        return COUNTRIES[self.number % len(COUNTRIES)]

    @property
    def card(self) -> str:
        return f"card-{self.number}-a"

    @property
    def ip(self) -> str:
        return f"10.{self.number >> 16 & 255}.{self.number >> 8 & 255}.{self.number & 255}"

    def event(self, event_type: str, session: str, **more: str | float | None) -> Document:
        """Return the fields of an event of this person: the common ones and ``more``."""
        common = {
            "type": event_type,
            "user_id": self.user_id,
            "session_id": session,
            "country": self.country,
            "ip": self.ip,
        }
        return common | more

    def payment(self, session: str, event_type: str, cents: int, status: str, **more: str | float | None) -> Document:
        """Return the fields of a payment or refund of ``cents`` hundredths of the person's currency."""
        currency = _CURRENCY.get(self.country, "EUR")
        paid: dict[str, str | float | None] = {"amount": cents / 100, "currency": currency, "card": self.card}
        return self.event(event_type, session, **(paid | {"status": status} | more))


def any_customer(rng: random.Random, settings: ShopSettings) -> Person:
    """Draw a customer: number k with a probability proportional to 1/(k + 20); number 0 has one of 150 sessions."""
    flat = 20
    return Person(int(flat * (math.exp(rng.random() * math.log(settings.users / flat + 1)) - 1)))


def rare_customer(rng: random.Random, settings: ShopSettings) -> Person:
    """Draw a customer of the less active half, so that few other events of the person mix with a fraud."""
    return Person(rng.randrange(settings.users // 2, settings.users))


def shopping(rng: random.Random, person: Person) -> list[ScriptedEvent]:
    """Script a normal session: views, perhaps a cart, a checkout and a payment, rarely a refund."""
    session, position = f"s{rng.getrandbits(40):010x}", rng.random() * EVENTS_PER_BLOCK
    steps: list[ScriptedEvent] = []

    def then(mean_gap: float, fields: Document) -> None:
        nonlocal position
        position += rng.expovariate(1 / mean_gap)
        steps.append(ScriptedEvent(position, fields))

    if rng.random() < 0.2:
        if rng.random() < 0.1:
            then(5, person.event("login", session, status="failed"))
        then(5, person.event("login", session, status="ok"))
    for _ in range(1 + int(rng.expovariate(0.4))):
        then(30, person.event("view", session, product_id=_product(rng)))
    if rng.random() < 0.4:
        cents = 100 + int(rng.expovariate(1 / 4_000))
        quantity = 1 + int(rng.expovariate(1))
        product = _product(rng)
        then(20, person.event("cart_add", session, product_id=product, quantity=quantity, amount=cents / 100))
        if rng.random() < 0.6:
            total = cents * quantity
            bought: dict[str, str | float | None] = {"product_id": product, "quantity": quantity}
            then(30, person.event("checkout", session, amount=total / 100))
            if rng.random() < 0.07:
                then(20, person.payment(session, "payment", total, "declined", **bought))
            then(20, person.payment(session, "payment", total, "ok", **bought))
            if rng.random() < 0.05:
                then(100, person.payment(session, "refund", total, "ok", **bought))
    return steps


def guest_view(rng: random.Random) -> list[ScriptedEvent]:
    """Script a visitor without an account who looks at one product."""
    visitor = Person(rng.randrange(1 << 20))
    seen = {**visitor.event("view", f"s{rng.getrandbits(40):010x}", product_id=_product(rng)), "user_id": None}
    return [ScriptedEvent(rng.random() * EVENTS_PER_BLOCK, seen)]


def _product(rng: random.Random) -> str:
    return f"p{int(rng.paretovariate(0.8)) % PRODUCTS}"


# --- frauds ---------------------------------------------------------------------------------------------------------

Fraud = Callable[[random.Random, ShopSettings], list[ScriptedEvent]]


def _spread(
    rng: random.Random, seconds: float, settings: ShopSettings, events: Sequence[Document]
) -> list[ScriptedEvent]:
    """Script the events in order, evenly spread over ``seconds`` of event time, at a random position in the block."""
    length = min(seconds * 1_000 / settings.step_ms, 0.95 * EVENTS_PER_BLOCK)
    start = rng.random() * (EVENTS_PER_BLOCK - length)
    return [ScriptedEvent(start + length * i / len(events), event) for i, event in enumerate(events)]


def _session(rng: random.Random) -> str:
    return f"f{rng.getrandbits(40):010x}"


def declined_burst(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a card that is declined nine times."""
    person, session = rare_customer(rng, settings), _session(rng)
    tries = [person.payment(session, "payment", rng.randrange(5_000, 30_000), "declined") for _ in range(9)]
    return _spread(rng, 40, settings, tries)


def card_testing(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script an account that tries stolen card numbers with small amounts."""
    person, session = rare_customer(rng, settings), _session(rng)
    cards = [f"card-x{rng.getrandbits(32):08x}" for _ in range(8)]
    tries = [
        person.payment(
            session, "payment", rng.randrange(50, 200), rng.choice(["declined", "declined", "ok"]), card=card
        )
        for card in cards
    ]
    return _spread(rng, 60, settings, tries)


def shared_card(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a stolen card that pays for several accounts."""
    card = f"card-y{rng.getrandbits(32):08x}"
    people = [rare_customer(rng, settings) for _ in range(7)]
    paid = [p.payment(_session(rng), "payment", rng.randrange(2_000, 9_000), "ok", card=card) for p in people]
    return _spread(rng, 70, settings, paid)


def travelling_card(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a card that pays in several countries within minutes."""
    person, session = rare_customer(rng, settings), _session(rng)
    paid = [person.payment(session, "payment", 4_900, "ok", country=c) for c in rng.sample(COUNTRIES, 5)]
    return _spread(rng, 60, settings, paid)


def refund_abuse(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script an account with many refunds."""
    person, session = rare_customer(rng, settings), _session(rng)
    events = [person.payment(session, "payment", 15_000, "ok")]
    events += [person.payment(session, "refund", rng.randrange(14_000, 19_000), "ok") for _ in range(7)]
    return _spread(rng, 80, settings, events)


def view_flood(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a scraper that views many products."""
    person, session = rare_customer(rng, settings), _session(rng)
    return _spread(rng, 45, settings, [person.event("view", session, product_id=f"p{i}") for i in range(130)])


def cart_flood(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a bot that holds back stock by adding many products to its cart."""
    person, session = rare_customer(rng, settings), _session(rng)
    puts = [person.event("cart_add", session, product_id=f"p{i}", quantity=9, amount=90.0) for i in range(48)]
    return _spread(rng, 55, settings, puts)


def gift_cards(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a stolen account that buys gift cards, one payment after the other."""
    person, session = rare_customer(rng, settings), _session(rng)
    return _spread(rng, 60, settings, [person.payment(session, "payment", 5_000, "ok") for _ in range(6)])


def large_order(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script two payments far above all others."""
    person, session = rare_customer(rng, settings), _session(rng)
    paid = [person.payment(session, "payment", rng.randrange(600_000, 4_000_000), "ok") for _ in range(2)]
    return _spread(rng, 50, settings, paid)


def watched_country(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a payment from a country where the shop has no customers."""
    person, country = rare_customer(rng, settings), rng.choice(["NG", "RU", "VE"])
    return _spread(rng, 1, settings, [person.payment(_session(rng), "payment", 65_000, "ok", country=country)])


def guest_order(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a large payment without an account."""
    paid = {**rare_customer(rng, settings).payment(_session(rng), "payment", 30_000, "ok"), "user_id": None}
    return _spread(rng, 1, settings, [paid])


def large_refund(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script a large refund without a payment before it."""
    person = rare_customer(rng, settings)
    return _spread(rng, 1, settings, [person.payment(_session(rng), "refund", rng.randrange(60_000, 90_000), "ok")])


def brute_force(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script an IP address that tries passwords on one account and succeeds with the last one."""
    person, session = rare_customer(rng, settings), _session(rng)
    ip = f"203.0.113.{rng.randrange(256)}"
    tries = [person.event("login", session, status="failed", ip=ip) for _ in range(16)]
    tries.append(person.event("login", session, status="ok", ip=ip))
    return _spread(rng, 30, settings, tries)


def credential_stuffing(rng: random.Random, settings: ShopSettings) -> list[ScriptedEvent]:
    """Script an IP address that tries one password on each of a list of accounts."""
    ip = f"198.51.100.{rng.randrange(256)}"
    people = [rare_customer(rng, settings) for _ in range(25)]
    return _spread(rng, 45, settings, [p.event("login", _session(rng), status="failed", ip=ip) for p in people])


FRAUDS: Final[tuple[Fraud, ...]] = (
    declined_burst,
    card_testing,
    shared_card,
    travelling_card,
    refund_abuse,
    view_flood,
    cart_flood,
    gift_cards,
    large_order,
    watched_country,
    guest_order,
    large_refund,
    brute_force,
    credential_stuffing,
)
