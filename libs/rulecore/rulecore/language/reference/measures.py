"""The measures of the language for the reference evaluator: distances, similarities, normal forms, check digits.

Each is written from its definition; ``columnar.measures`` computes the same in another way.
"""

from __future__ import annotations

import ipaddress
import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from rulecore.language.ast import Call
from rulecore.language.reference.values import double
from rulecore.language.text_signatures import EARTH_RADIUS_KM, MAX_COMPARED
from rulecore.language.types import Value


def _distance_km(_expr: Call, *degrees: Any) -> float | None:
    """Return the length of the great circle between two places, by the angle between their vectors."""
    latitude, longitude, latitude2, longitude2 = map(double, degrees)
    if not all(abs(x) <= 90 for x in (latitude, latitude2)) or not all(abs(x) <= 180 for x in (longitude, longitude2)):
        return None
    a, b = _vector(latitude, longitude), _vector(latitude2, longitude2)
    cross = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    return EARTH_RADIUS_KM * math.atan2(math.hypot(*cross), sum(x * y for x, y in zip(a, b, strict=True)))


def _vector(latitude: float, longitude: float) -> tuple[float, float, float]:
    phi, angle = math.radians(latitude), math.radians(longitude)
    return math.cos(phi) * math.cos(angle), math.cos(phi) * math.sin(angle), math.sin(phi)


def _speed_kmh(expr: Call, lat: Any, lon: Any, time: int, lat2: Any, lon2: Any, time2: int) -> float | None:
    distance = _distance_km(expr, lat, lon, lat2, lon2)
    return None if distance is None or time == time2 else distance / (abs(time2 - time) / 3_600_000)


def _levenshtein(_expr: Call, left: str, right: str) -> int | None:
    if max(len(left), len(right)) > MAX_COMPARED:
        return None
    row = list(range(len(right) + 1))
    for i, char in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            before, row[j] = row[j], min(before + (char != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def _jaro_winkler(_expr: Call, left: str, right: str) -> float | None:
    """Return Jaro's similarity, raised for a common start of up to four characters (Winkler 1990)."""
    if max(len(left), len(right)) > MAX_COMPARED:
        return None
    if not left or not right:
        return float(left == right)
    reach = max(0, max(len(left), len(right)) // 2 - 1)
    taken = [False] * len(right)
    common = []
    for i, char in enumerate(left):
        for j in range(max(0, i - reach), min(len(right), i + reach + 1)):
            if not taken[j] and right[j] == char:
                taken[j] = True
                common.append(char)
                break
    if not common:
        return 0.0
    others = [char for char, used in zip(right, taken, strict=True) if used]
    moved = sum(a != b for a, b in zip(common, others, strict=True)) // 2
    jaro = (len(common) / len(left) + len(common) / len(right) + (len(common) - moved) / len(common)) / 3
    start = 0
    while start < min(4, len(left), len(right)) and left[start] == right[start]:
        start += 1
    return jaro + start * 0.1 * (1 - jaro) if jaro > 0.7 else jaro


def _normalize_name(_expr: Call, text: str) -> str:
    plain = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    folded = "".join(
        char for char in unicodedata.normalize("NFKD", plain.casefold()) if not unicodedata.combining(char)
    )
    return " ".join("".join(char if char.isalnum() else " " for char in folded).split())


def _normalize_email(_expr: Call, text: str) -> str | None:
    local, at, domain = text.strip(" ").lower().rpartition("@")
    if not at or not local or not domain or any(char.isspace() for char in local + domain) or "@" in local:
        return None
    local = local.split("+")[0]
    if domain in ("gmail.com", "googlemail.com"):
        local, domain = local.replace(".", ""), "gmail.com"
    return f"{local}@{domain}" if local else None


def _luhn(_expr: Call, text: str) -> bool:
    if not text or any(char not in "0123456789" for char in text):
        return False
    total = 0
    for place, char in enumerate(reversed(text)):
        digit = int(char) * (1 + place % 2)
        total += digit - 9 if digit > 9 else digit
    return total % 10 == 0


def _percent_change(_expr: Call, old: Any, new: Any) -> float | None:
    before, after = double(old), double(new)
    return None if before == 0 else (after - before) / abs(before) * 100


def _z_score(_expr: Call, value: Any, mean: Any, deviation: Any) -> float | None:
    spread = double(deviation)
    return None if spread == 0 else (double(value) - double(mean)) / spread


def _entropy(_expr: Call, text: str) -> float:
    shares = [text.count(char) / len(text) for char in sorted(set(text))]
    return -sum(share * math.log2(share) for share in shares) + 0.0


def _domain_suffix(_expr: Call, host: str, labels: int) -> str | None:
    name = host.lower().removesuffix(".")
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        pass
    else:
        return None
    parts = name.split(".")
    return None if len(parts) < labels or not all(parts) else ".".join(parts[-labels:])


MEASURES: Mapping[str, Callable[..., Value]] = {
    "distance_km": _distance_km,
    "speed_kmh": _speed_kmh,
    "levenshtein": _levenshtein,
    "jaro_winkler_similarity": _jaro_winkler,
    "normalize_name": _normalize_name,
    "normalize_email": _normalize_email,
    "luhn_check": _luhn,
    "percent_change": _percent_change,
    "z_score": _z_score,
    "entropy": _entropy,
    "domain_suffix": _domain_suffix,
}
