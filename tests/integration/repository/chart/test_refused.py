"""Values that are wrong are refused before anything is installed, in words that name the value and the mend."""

import pytest

from tests.rigs.helm import template, values_of

PLANTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # misspelt, or in the wrong place
    ("gateway.replicaCount", "2", ("gateway", "Additional property replicaCount is not allowed")),
    ("gateways", "{}", ("Additional property gateways is not allowed",)),
    ("workers.classes.cpu.gpu", "1", ("workers.classes.cpu", "Additional property gpu is not allowed")),
    ("secrets.gateway", '{"key_pepper": "abc"}', ("secrets.gateway", "Expected: string")),
    ("console.isHttps", '"on"', ("console.isHttps", "Expected: boolean, given: string")),
    ("gateway.replicas", '"two"', ("gateway.replicas", "Expected: integer, given: string")),
    # of no use in that size
    ("gateway.replicas", "0", ("gateway.replicas", "Must be greater than or equal to 1")),
    ("controller.replicas", "0", ("controller.replicas", "Must be greater than or equal to 1")),
    ("gateway.service.port", "70000", ("gateway.service.port", "Must be less than or equal to 65535")),
    ("workers.classes.cpu.perDevice", "9", ("workers.classes.cpu.perDevice", "Must be less than or equal to 8")),
    ("kept.recordsS", "10", ("kept.recordsS", "Must be greater than or equal to 60")),
    ("keda.pollS", "0", ("keda.pollS", "Must be greater than or equal to 1")),
    ("nats.urls", "[]", ("nats.urls", "at least 1 items")),
    ("console.hosts", "[]", ("console.hosts", "at least 1 items")),
    # one of several words
    ("image.pullPolicy", '"Sometimes"', ("image.pullPolicy", '"Always", "IfNotPresent", "Never"')),
    ("gateway.service.type", '"Loadbalancer"', ("gateway.service.type", '"ClusterIP", "NodePort", "LoadBalancer"')),
    ("nats.replicas", "2", ("nats.replicas", "1, 3, 5")),
    ("logLevel", '"info"', ("logLevel", '"DEBUG", "INFO", "WARNING", "ERROR"')),
    ("gateway.spread", '"always"', ("gateway.spread", '"soft", "strict", "none"')),
    # texts of a form
    ("nats.urls", '["http://nats:4222"]', ("nats.urls", "http://nats:4222", "tls://HOST:PORT")),
    ("nats.urls", '["tls://nats"]', ("nats.urls", "tls://nats", "tls://HOST:PORT")),
    ("secrets.console", '""', ("secrets.console", "name of an existing Secret")),
    ("image.tag", '"latest"', ("image.tag", "latest", "version")),
    ("image.registry", '"https://registry.example.org"', ("image.registry", "without a scheme")),
    ("tyk.image", '"tykio/tyk-gateway"', ("tyk.image", "tykio/tyk-gateway", "tag or a digest")),
    ("tyk.goMemLimit", '"4Gi"', ("tyk.goMemLimit", "4Gi", "MiB or GiB")),
    ("webhooks.networks", '["10.20.0.0"]', ("webhooks.networks", "10.20.0.0", "/16")),
    ("console.hosts", '["https://console.example.org"]', ("console.hosts", "without a scheme")),
    ("console.trustedOrigins", '["console.example.org"]', ("console.trustedOrigins", "https://")),
    ("console.frontUrl", '"api.example.org"', ("console.frontUrl", "api.example.org", "https://")),
    ("console.uploadsUrl", '"/models"', ("console.uploadsUrl", "/models", "s3://")),
    ("console.scratch", '"20 GB"', ("console.scratch", "20 GB", "20Gi")),
    ("repositories.urls", '["models"]', ("repositories.urls", "models", "s3://")),
    ("workers.classes.cpu.device", '"gpu:0"', ("workers.classes.cpu.device", "gpu:0", "gpus")),
    ("workers.classes.cpu.cache", '{"size": "lots", "claim": true}', ("workers.classes.cpu.cache.size", "50Gi")),
    ("workers.classes.cpu.lockHostPath", '"locks"', ("workers.classes.cpu.lockHostPath", "locks", "/")),
    ("workers.classes.A100", "{}", ("workers.classes", "A100", "small letters")),
    (
        "workers.classes.cpu.env",
        '{"WORKER_LOAD_S": "9"}',
        ("workers.classes.cpu.env", "WORKER_LOAD_S", "SIGNALBOX_WORKER_"),
    ),
    ("console.classes", '["cpu"]', ("console.classes", "cpu=")),
    # values that do not fit each other
    ("workers.classes", "null", ("workers.classes is empty", "name a class")),
    ("gateway.env", '{"SIGNALBOX_GATEWAY_SECRET": "abc"}', ("gateway.env", "SIGNALBOX_GATEWAY_SECRET", "take it out")),
    (
        "outbound.env",
        '{"OTEL_EXPORTER_OTLP_HEADERS": "authorization=abc"}',
        ("outbound.env", "OTEL_EXPORTER_OTLP_HEADERS", "secretEnv", "SIGNALBOX_OUTBOUND_TRACES_HEADERS"),
    ),
    (
        "outbound.env",
        '{"SIGNALBOX_OUTBOUND_TRACES_HEADERS": "authorization=abc"}',
        ("outbound.env", "SIGNALBOX_OUTBOUND_TRACES_HEADERS", "secretEnv"),
    ),
    ("tyk.env", '{"TYK_GW_SECRET": "abc"}', ("tyk.env", "TYK_GW_SECRET", "Secret signalbox-tyk")),
    ("kept.resultsS", "100000", ("kept.recordsS", "raise kept.recordsS")),
    ("console.uploadsUrl", '""', ("console.uploadsUrl", "models.existingClaim")),
    ("tyk.enabled", "false", ("tyk.enabled", "gateway.exposePlugin=true")),
    ("gateway.exposePlugin", "true", ("gateway.exposePlugin", "tyk.enabled", "one of them to false")),
    ("postgres.peers", "[]", ("postgres.peers is empty", "networkPolicies.enabled=false")),
    ("console.ingress.enabled", "true", ("console.ingress.enabled", "console.hosts")),
    ("keda.enabled", "true", ("keda.enabled", "keda.classes.cpu={min: 1, max: 4}")),
    ("workers.classes.cpu.image", '"worker-cuda"', ("workers.classes.cpu.image", "set gpus, or image: worker")),
    ("networkPolicies.egress", '{"gateways": []}', ("networkPolicies.egress.gateways", "it is one of gateway, worker")),
)
"""Path of a value, a wrong one as JSON, and words of the message."""
TOGETHER = (
    ({"keda": '{"enabled": true, "classes": {"gpu": {"min": 0, "max": 1}}}'}, ("keda.classes.gpu", "spell it alike")),
    ({"keda": '{"enabled": true, "classes": {"cpu": {"min": 3, "max": 2}}}'}, ("keda.classes.cpu", "raise max")),
    ({"nats.urls": '["tls://a:4222", "tls://b:4222"]'}, ("nats.replicas is 3", "name every server")),
    ({"nats.urls": '["nats://a:4222"]'}, ("nats.urls has nats://a:4222", "write tls://")),
    ({"redis.caSecret": '"ca"'}, ("redis.caSecret", "set redis.tls=true")),
    ({"workers.classes.cpu.gpus": "16"}, ("workers.classes.cpu", "lower perDevice")),
)


@pytest.mark.parametrize(("path", "wrong", "words"), PLANTED, ids=[f"{path}={wrong}" for path, wrong, _ in PLANTED])
def test_a_wrong_value_is_refused_with_its_mend(path: str, wrong: str, words: tuple[str, ...]) -> None:
    refused({path: wrong}, words)


@pytest.mark.parametrize(("values", "words"), TOGETHER, ids=[words[0] for _, words in TOGETHER])
def test_values_that_do_not_fit_together_are_refused(values: dict[str, str], words: tuple[str, ...]) -> None:
    refused(values, words)


def refused(values: dict[str, str], words: tuple[str, ...]) -> None:
    """What helm says holds these words, and no example of the chart would install."""
    given = [argument for path, text in values.items() for argument in ("--set-json", f"{path}={text}")]
    done = template(*values_of("small"), *given)
    assert done.returncode != 0, "it was rendered"
    assert not [word for word in words if word not in done.stderr], done.stderr
