"""Keep secrets out of everything that is written: command lines, exception texts, names.

A secret is recognized by the name it is given under (`--api-key X`, `WANDB_API_KEY=X`, `Authorization: X`), by its
place in a URL, by the shape that well-known services give their tokens, or because it is the value of a variable or an
argument with such a name. When in doubt, the text is hidden; plain counts (`--max-tokens 512`) stay readable.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from .files import is_folder

# Keeps this module's code object alive, which would otherwise be freed once the module has run. The module is imported
# at the first event, possibly while the program's torch.profiler records stacks, which point to names in code objects.
_CODE = sys._getframe().f_code

HIDDEN = "***"

SHORTEST_KNOWN = 8
"""Minimum characters of a known secret. A shorter value, such as "root", would be hidden in unrelated text."""


LONGEST = 1 << 14
"""Maximum characters of a text to inspect and keep, so that a long text does not delay the program."""


def redact_text(text: str, known: Iterable[str] = ()) -> str:
    """Return `text` without its secrets, cut to LONGEST characters.

    `known` are secrets to hide wherever they occur (see `known_secrets`).
    """
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}... ({len(text) - LONGEST} more characters)"
    for secret in known:
        text = text.replace(secret, HIDDEN)
    if not _WORD.fullmatch(text):
        text = _PRIVATE_KEY.sub(HIDDEN, text)
        text = _USER_IN_URL.sub(f"://{HIDDEN}@", text)
        text = _LOGIN.sub(rf"\1{HIDDEN}", text)
        for pattern in (_PLACED, *((_USER, _ORACLE) if "@" in text else ())):
            text = pattern.sub(rf"\1{HIDDEN}", text)
        text = _hide_values(text, _HEADER, _LINE)
        text = _hide_values(text, _PAIR, _VALUE)
        text = _hide_values(text, _OPTION, _VALUE)
    return _SHAPE.sub(HIDDEN, text)


def redact_command(words: Sequence[str], known: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the words of a command line without secrets: `--token X`, `--token=X`, `env TOKEN=X`, ..."""
    known = tuple(known)
    shown_words = []
    option = None
    """The option whose values are being hidden."""
    for position, word in enumerate(words):
        if position and words[position - 1] in ("-u", "--user") and _A_LOGIN.fullmatch(word):
            shown_words.append(f"{word.partition(':')[0]}:{HIDDEN}")
            continue
        if position and _may_precede_one(words[position - 1]) and _A_RANDOM_WORD.fullmatch(word):
            shown_words.append(HIDDEN)
            continue
        if option is not None and (not _AN_OPTION.fullmatch(word) or _RANDOM.match(word)):
            shown_words.append(redact_text(word, known) if _tells_nothing(option, word) else HIDDEN)
            if shown_words[-1] != HIDDEN or not option.endswith("s"):  # an option in the plural takes several values
                option = None
            continue
        name, equals, value = word.partition("=")
        option = word if word.startswith("-") and not equals and is_secret(word) else None
        if equals and _A_NAME.fullmatch(name) and is_secret(name) and not _tells_nothing(name, value):
            shown_words.append(f"{name}={HIDDEN}")
        else:
            shown_words.append(redact_text(word, known))
    return tuple(shown_words)


def _may_precede_one(word: str) -> bool:
    """Return whether a secret may follow this word, although usually something else does."""
    return word in _AMBIGUOUS or ("." in word and not word.startswith("-") and is_secret(word))


def redact_values(value: Any, known: Iterable[str] = ()) -> Any:
    """Return `value` with secrets removed from strings in dictionaries (keys, too), lists and tuples."""
    if isinstance(value, str):
        return redact_text(value, known)
    if isinstance(value, dict):
        return {redact_values(key, known): redact_values(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([redact_values(item, known) for item in value])
    return value


def known_secrets(environ: Mapping[str, str], words: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the values of variables and arguments that have the name of a secret, longest first."""
    candidates = {value for name, value in environ.items() if is_secret(name) and not _tells_nothing(name, value)}
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and word.startswith("-"):
            next_word = words[position + 1] if position + 1 < len(words) else ""
            value = "" if _AN_OPTION.fullmatch(next_word) and not _RANDOM.match(next_word) else next_word
        if _A_NAME.fullmatch(name) and is_secret(name) and not _tells_nothing(name, value):
            candidates.add(value)
    # The value of SSH_KEY_DIR, for example, is a folder.
    secrets = (secret for secret in candidates if len(secret) >= SHORTEST_KNOWN and not is_folder(secret))
    return tuple(sorted(secrets, key=len, reverse=True))


@lru_cache(1024)
def is_secret(name: str) -> bool:
    """Return whether a name denotes a secret: "hf-token" and "apiKey" do, "tokenizer" does not."""
    if name in _FOLDERS or name.endswith(("Error", "Exception", "Warning")):
        return False
    words = _words(name)
    if _SECRET_NAME.search(name):
        return True
    return any(map(_SECRET.search, words)) and not ("token" in words and any(map(_VOCABULARY.fullmatch, words)))


def _words(name: str) -> set[str]:
    """Split a name into lower-case words: "apiKey_2" gives "apikey", "api", "key" and "2"."""
    return {word.lower() for word in _CAMEL.findall(name) + _SNAKE.findall(name)}


def _tells_nothing(name: str, value: str) -> bool:
    """Return whether the value under such a name is only a switch or a count."""
    if not value or value.lower() in ("true", "false", "none", "null", HIDDEN):
        return True
    return bool(_NUMBER.fullmatch(value)) and any(map(_COUNTS.fullmatch, _words(name)))


def _hide_values(text: str, named: re.Pattern[str], values: re.Pattern[str]) -> str:
    pieces = []
    copied_end = search_start = 0
    while match := named.search(text, search_start):
        search_start = match.end()
        value = values.match(text, search_start) if is_secret(match["name"]) else None
        if value is not None and not _tells_nothing(match["name"], value[0].strip("\\\"'`,;)]}")):
            pieces += [text[copied_end:search_start], HIDDEN]
            copied_end = search_start = value.end()
    return "".join(pieces) + text[copied_end:]


# ---- names ----

_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SNAKE = re.compile(r"[A-Za-z0-9]+")
_SECRET = re.compile(
    r"^(?:keys?|pass|pwd?|passcode|bearer|cookies?|jwt|signature|oauth|webhooks?|creds?|dsn|t?otp|psk|csrf|salt)$|^mnemonic$"
    r"|^(?:admin|db|root|smtp|user)(?:pass|pwd?)$"
    r"|tokens?$|passw(?:or)?d|passphrase|credential|^secret(?!ar)|secrets?$|auth(?:orization|entication)?$"
    r"|(?:access|account|api|auth|client|deploy|encryption|host|license|master|private|secret|signing|ssh)keys?$"
)
# Names of secrets whose single words are harmless.
_SECRET_NAME = re.compile(
    r"(?:^|_)PAT$|^-*pat$|(?i:conn(?:ection)?[_-]?str(?:ing)?$|sess(?:ion)?[_-]?id$|seed[_-]?phrase$)"
)
_FOLDERS = frozenset(("PWD", "OLDPWD"))  # the shell's working folder
# The special tokens of a tokenizer.
_VOCABULARY = re.compile(r"bos|cls|eos|image|mask|pad|sep|special|unk")
# Words that make a number under a secret's name a count or a size.
_COUNTS = re.compile(
    r"batch|chunk|count|dims?|dropout|every|frames|heads|ids?|keys|len|length|limit|loss|max|min|n|num|number|per|rate"
    r"|ratio|samples?|seq|size|steps?|tokens|total|weight|window"
)
_NUMBER = re.compile(r"[+-]?\d[\d_]{0,15}(?:\.\d{1,8})?(?:[eE][+-]?\d{1,3})?[kKmMbBgGtT]?")
_A_NAME = re.compile(r"[\w.@/+~-]+")
_AN_OPTION = re.compile(r"--?[A-Za-z]|--[A-Za-z][\w.-]*(?:=.*)?|-[a-z]+(?:[-_][a-z]+)*", re.DOTALL)

# Upper case, lower case and digits: more likely a secret than an option.
_RANDOM = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)", re.DOTALL)
_A_LOGIN = re.compile(r"[^\s:/]+:(?!//)\S+")

# Letters before digits at least three times, in upper and lower case: neither a name nor a version. Or 40 hex digits.
_RANDOM_WORD = r"(?=[A-Za-z0-9]*[a-z])(?=[A-Za-z0-9]*[A-Z])(?:[A-Za-z]+\d+){3,}[A-Za-z]*|[0-9a-f]{40}"
_A_RANDOM_WORD = re.compile(_RANDOM_WORD)
# Words before a secret that are usually followed by something else.
_AMBIGUOUS = frozenset(("-p", "--tok", "--access", "--wandb", "login"))

# ---- texts ----

_WORD = re.compile(r"[\w./+-]*")  # a name or a path: only its shape can show a secret

# (?=(...))\1 matches a whole name at once: backtracking over its parts would take time quadratic in its length.
_NAME = r"(?<![\w.-])(?=(?P<name>{first}[\w.-]*))(?P=name)"
_QUOTED = (
    r"[bBfFrRuU]{0,2}(?:\"(?:\\.|[^\"\\])*\"?|'(?:\\.|[^'\\])*'?"
    r"|(?P<open>\\+[\"'])(?:(?!(?P=open)).)*(?:(?P=open))?|[\[({][^\])}]*[\])}]*)"
)
_BARE = r"(?:\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s&;,]|[&;,](?![\w.-]+=))+"
_VALUE = re.compile(rf"{_QUOTED}|{_BARE}", re.DOTALL)
_EQUALS = r"\\*[\"']?\]?\s*(?:=>|:=|=(?!=)|:(?!:|//))\s*"
_PAIR = re.compile(_NAME.format(first="[A-Za-z_-]") + _EQUALS)
_OPTION = re.compile(_NAME.format(first="--?[A-Za-z]") + r"\s+(?!-)")
# Names whose value may contain spaces: it is the rest of the line, up to a quotation mark.
_HEADER = re.compile(
    r"(?<![\w.-])(?P<name>[\w-]{0,40}(?:authorization|cookie|passw(?:or)?d|passphrase))[ \t]*:[ \t]*", re.IGNORECASE
)
_LINE = re.compile(r"[^\s\"'`][^\r\n\"'`]*")
_USER_IN_URL = re.compile(r"://(?:[^\s/?#\"'<>]*@|[^\s/:@?#\"'<>]+:(?!\d+/)[^\s@\"'<>]{1,256}@)")
_LOGIN = re.compile(r"((?<![\w-])(?:-u|--user)[ =]?[^\s:/=]{1,100}:)(?!//)[^\s\"']+")
# Random-looking text after a word that may announce a secret.
_PLACED = re.compile(
    r"((?<![\w-])(?:-p ?|--(?:tok|access|wandb) )|(?:[Tt]oken|secret|key|[Pp]assword|passphrase) (?:is )?|JWT |login )"
    rf"(?:{_RANDOM_WORD})(?!\w)"
)
# Without a scheme before it: user:password@host.
_USER = re.compile(r"((?<![\w./:-])[\w.+-]{1,64}:)[^\s@/:\"'<>]{6,256}(?=@(?!sha\d)[A-Za-z\d])")
_ORACLE = re.compile(r"(jdbc:oracle:\w+:[^\s/@]{1,100}/)[^\s@]+(?=@)")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
# The tokens of Hugging Face, OpenAI and Anthropic, AWS, GitHub, GitLab, Slack, Google, NVIDIA, Groq, npm, PyPI, Docker,
# Stripe, Replicate, W&B, Databricks, SendGrid, RunPod, Vault, Google's clients, Square, Mailgun, Atlassian, Linear,
# Sentry, age, New Relic, Facebook, Fireworks, Amazon, Scaleway, 1Password, Mapbox; JSON web tokens, bearers, signatures
# in URLs, and webhook URLs, which alone allow posting.
_SHAPE = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|sk-(?=[\w-]*\d)[\w-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|gl(?:pat|ptt|dt|rt)-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}"
    r"|ya29\.[\w-]+|nvapi-[\w-]{16,}|gsk_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|dckr_pat_[\w-]{16,}"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{30,}|wandb_v1_\w{20,}|dapi[0-9a-f]{32}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|rpa_[A-Za-z0-9]{30,}|hv[sb]\.[\w-]{20,}|GOCSPX-[\w-]{16,}"
    r"|dop_v1_[0-9a-f]{32,}|tskey-[\w-]{10,}|xai-[\w-]{20,}|pplx-[\w-]{20,}|tvly-[\w-]{10,}|shpat_[0-9a-f]{16,}"
    r"|whsec_[\w+/=]{16,}|\d{8,10}:AA[\w-]{30,}|sq0(?:atp|csp|idp)-[\w-]{20,}|key-[0-9a-f]{32}|ATATT3[\w=-]{12,}"
    r"|lin_api_[A-Za-z0-9]{20,}|sntry[su]_[\w+/=-]{12,}|AGE-SECRET-KEY-1[A-Z0-9]+|NRAK-[A-Z0-9]{20,}|EAACEdEose0cBA\w+"
    r"|fw_(?=[A-Za-z]*\d)[A-Za-z0-9]{20,}|amzn\.mws\.[0-9a-f-]{30,}|SCW[A-Z0-9]{17}|ops_eyJ[\w-]+|sk\.eyJ[\w-]+\.[\w-]+"
    r"|xapp-[\w-]{10,}|eyJ[\w-]{8,}\.eyJ[\w-]+\.[\w-]*)"
    r"|(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]+|(?<=/api/webhooks/)\d+/[\w-]+"
    r"|(?<=office\.com/)webhook(?:b2)?/[^\s\"']+|(?<=api\.telegram\.org/)bot\d+:[\w-]+"
    r"|(?:(?<=[Bb]earer )|(?<=BEARER ))[\w.~+/=-]{8,}|(?<=[?&]sig=)[^\s&]+"
    r"|(?<=[?&]code=)[^\s&\"']{10,}|(?<=ntfy\.sh/)[\w-]+"
    r"|(?<=[Bb]asic )(?=[A-Za-z+/]*[0-9=])[A-Za-z0-9+/]{16,}={0,2}(?![\w./])"
)
