"""No key in any text: the real shapes of keys, as providers and libraries quote them in their errors."""

from __future__ import annotations

import pytest

from celeriac.connectors.redaction import without_secrets

SECRET = "9f8E7d6C5b4A3210zyXwVuTs"

SHAPES = {
    "openai": "Incorrect API key provided: sk-proj-Ab3_dE-9f8E7d6C5b4A3210zyXwVuTs. You can find yours",
    "openai masked": "Incorrect API key provided: sk-proj-********************wVuTs.",
    "openai old, masked": "Incorrect API key provided: 9f8E7d6C***************wVuTs. You can find",
    "anthropic": "invalid x-api-key: sk-ant-api03-9f8E7d6C5b4A3210zyXwVuTs-AA",
    "google in a url": "400 for url 'https://g.example/v1beta/models/m:stream?alt=sse&key=9f8E7d6C5b4A3210zyXwVuTs'",
    "google": "API key AIzaSyA9f8E7d6C5b4A3210zyXwVuTs-12345 not valid",
    "google oauth": "token ya29.a0Af9f8E7d6C5b4A3210zyXwVuTs expired",
    "azure header": "Request headers: {'api-key': '9f8E7d6C5b4A3210zyXwVuTs', 'x': 'y'}",
    "azure json": '{"api-key": "9f8E7d6C5b4A3210zyXwVuTs"}',
    "azure json in json": '"{\\"api-key\\": \\"9f8E7d6C5b4A3210zyXwVuTs\\"}"',
    "azure sas": "https://a.example/c?sv=2024&sig=9f8E7d6C5b4A3210zyXwVuTs%3D&se=2026",
    "argument": "acompletion(model='m', api_key='9f8E7d6C5b4A3210zyXwVuTs')",
    "aws id": "The security token included in the request is invalid: AKIA9F8E7D6C5B4A3210",
    "aws signature": (
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIA9F8E7D6C5B4A3210/20261201/us-east-1/bedrock/"
        "aws4_request, SignedHeaders=host, Signature=9f8E7d6C5b4A3210zyXwVuTs"
    ),
    "aws presigned": "GET /?X-Amz-Security-Token=9f8E7d6C5b4A3210zyXwVuTs&X-Amz-Signature=9f8E7d6C5b4A3210zyXwVuTs",
    "bearer": "headers={'Authorization': 'Bearer 9f8E7d6C5b4A3210zyXwVuTs'}",
    "basic": "Authorization: Basic OWY4RTdkNkM1YjRBMzIxMHp5WHdWdVRz9f8E7d6C5b4A3210zyXwVuTs",
    "basic in a url": "cannot connect to https://me:9f8E7d6C5b4A3210zyXwVuTs@proxy.example:8080/v1",
    "groq": "key gsk_9f8E7d6C5b4A3210zyXwVuTs is wrong",
    "hugging face": "hf_9f8E7d6C5b4A3210zyXwVuTs",
    "xai": "xai-9f8E7d6C5b4A3210zyXwVuTs",
    "jwt": "token eyJhbGciOiJIUzI1NiJ9.9f8E7d6C5b4A3210zyXwVuTs.9f8E7d6C5b4A3210zyXwVuTs",
    "service account": (
        '"private_key": "-----BEGIN PRIVATE KEY-----\\n9f8E7d6C5b4A3210zyXwVuTs\\n'
        '9f8E7d6C5b4A3210zyXwVuTs\\n-----END PRIVATE KEY-----\\n", "client_email": "a@b.example"'
    ),
    "service account, cut": "-----BEGIN RSA PRIVATE KEY-----\n9f8E7d6C5b4A3210zyXwVuTs",
}
_TRACES = (SECRET, SECRET.upper()[:16], "wVuTs", "9f8E7d6C")


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_what_looks_like_a_key_is_removed(text: str) -> None:
    cleaned = without_secrets(text, {})
    assert "[removed]" in cleaned
    assert not [trace for trace in _TRACES if trace in cleaned], cleaned


ENVIRONMENT = {
    "in-house key": ("INHOUSE_API_KEY", SECRET, f"denied: {SECRET}!"),
    "numbered": ("MISTRAL_API_KEY_2", SECRET, f"denied: {SECRET}"),
    "aws id": ("AWS_ACCESS_KEY_ID", SECRET, f"denied: {SECRET}"),
    "percent-encoded": ("VERTEX_TOKEN", f"{SECRET}/+=", f"denied: {SECRET}%2F%2B%3D"),
    "of a url": (
        "OPENAI_API_BASE",
        f"https://me:{SECRET}@gw.example/v1",
        f"login {SECRET} refused",
    ),
    "json": ("VERTEXAI_CREDENTIALS", '{"a":\n"b"}', 'cannot read {"a":\\n"b"}'),
}


@pytest.mark.parametrize(("name", "value", "text"), ENVIRONMENT.values(), ids=ENVIRONMENT.keys())
def test_a_secret_of_the_environment_is_removed_whatever_its_form(
    name: str, value: str, text: str
) -> None:
    cleaned = without_secrets(text, {name: value, "HOME": "/home/me", "LANG": "C.UTF-8"})
    assert "[removed]" in cleaned
    assert SECRET not in cleaned
    assert value not in cleaned


ORDINARY = [
    "Rate limit reached for gpt-5 in organization org-abc on tokens per min (TPM): Limit 30000, Used 29000.",
    "This model's maximum context length is 128000 tokens. However, you requested 131000 tokens.",
    "Unsupported parameter: 'temperature' is not supported with this model.",
    "task-list, disk-usage and risk-free: https://api.example.com/v1/chat?key_size=5 took 3 s",
    "Your key is fine; the token count is 12345678 and the monkey is at /home/me/project",
    "Error code: 404 - {'error': {'message': 'The model `gpt-9` does not exist', 'code': 'model_not_found'}}",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_words_stay(text: str) -> None:
    assert without_secrets(text, {"HOME": "/home/me", "TOKENIZERS_PARALLELISM": "false"}) == text
