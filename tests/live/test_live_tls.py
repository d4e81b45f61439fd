"""Live weights over TLS: nothing is readable on the way, other certificates are refused."""

import contextlib
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from deltawire import DeltawireError, live
from deltawire.live import handshake

from tests.live.changing_relay import Relay
from tests.live.live_pairs import (
    ANYWHERE,
    TOKEN,
    publish,
    publisher_of,
    same,
    train,
    wait_until,
    weights,
)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no program openssl")


def contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the server's side and of the client's, with a certificate made for 127.0.0.1."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


def test_over_tls(tmp_path) -> None:
    """A tree, with parents that serve over TLS too."""
    server, client = contexts(tmp_path, "trainer")
    model = weights()
    seen = bytearray()
    with (
        publisher_of(model, tls=server, fanout=1) as publisher,
        contextlib.closing(Relay(publisher.address)) as relay,
        contextlib.ExitStack() as stack,
    ):
        relay.change = lambda piece: (seen.extend(piece), piece)[1]
        publish(publisher)
        readers = []
        for number in range(2):
            reader = live.Subscriber(
                weights(number),
                relay.address,
                token=TOKEN,
                tls=client,
                serve=ANYWHERE,
                serve_tls=server,
            )
            readers.append(stack.enter_context(reader))
            reader.wait(0, 20)
        for number in range(3):
            train(model, number)
            version = publish(publisher)
            for reader in readers:
                reader.wait(version, 20)
                reader.update()
                assert same(reader.model, model)
        assert readers[1].parent == readers[0].address
    for text in (handshake.MAGIC, b"safetensors", b"manifest", b"BF16"):
        assert text not in seen
    assert len(seen) > model["first"].nbytes


def test_other_certificates(tmp_path, monkeypatch) -> None:
    """And connections that are none of TLS are refused, named, and cost nobody else anything."""
    monkeypatch.setattr(handshake, "SECONDS", 2.0)
    server, client = contexts(tmp_path, "trainer")
    _, stranger = contexts(tmp_path, "stranger")
    model = weights()
    with publisher_of(model, tls=server) as publisher:
        publish(publisher)
        for context, reason in ((stranger, "TLS failed.*verify"), (None, "")):
            with live.Subscriber(
                weights(2), publisher.address, token=TOKEN, tls=context
            ) as subscriber:
                wait_until(lambda s=subscriber: s.problem is not None, "it has noticed")
                assert subscriber.latest is None
                if reason:
                    with pytest.raises(DeltawireError, match=reason) as error:
                        subscriber.wait(timeout=20)
                    assert error.value.code == "Unauthorized"
        with live.Subscriber(weights(2), publisher.address, token=TOKEN, tls=client) as subscriber:
            assert subscriber.wait(0, 20) == subscriber.update() == 0
    with (
        publisher_of(model) as publisher,
        live.Subscriber(weights(2), publisher.address, token=TOKEN, tls=client) as subscriber,
    ):
        wait_until(lambda: subscriber.problem is not None, "it has noticed")
        assert subscriber.problem.code == "Unauthorized"
