"""The classes of user agents: ordered patterns, of which the first that matches decides."""

from __future__ import annotations

#: Class and pattern, a regular expression of Rust and of Python, for the agent in lower case.
AGENT_CLASSES: tuple[tuple[str, str], ...] = (
    (
        "bot",
        r"bot\b|bot/|crawl|spider|slurp|mediapartners|facebookexternalhit|whatsapp|bingpreview|pingdom|uptime|monitor"
        r"|lighthouse|headless|feedfetcher|archiver|scrapy|nmap|masscan|zgrab|censys",
    ),
    (
        "tool",
        r"^(?:curl|wget|python|aiohttp|go-http-client|java/|java-http|okhttp|apache-httpclient|libwww|lwp|perl|ruby"
        r"|axios|node|undici|postman|insomnia|httpie|guzzle|php|powershell|k6|jmeter|vector|fluent|kube-probe"
        r"|prometheus|elb-healthchecker|dart|rest-client|winhttp)",
    ),
    ("tablet", r"ipad|tablet|kindle|silk/|playbook|xoom"),
    ("mobile", r"mobi|iphone|ipod|windows phone|blackberry|opera mini|iemobile|symbian"),
    ("tablet", "android"),
    ("desktop", r"windows nt|macintosh|x11|cros |linux"),
)
OTHER_AGENT = "other"
