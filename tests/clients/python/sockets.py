"""Watches and logs over WebSockets, as browsers read them, and tokens of those that cannot set a header."""

import base64
import json
import os
import ssl

import websocket
from kubernetes import client, config

NAMESPACE, IMAGE = os.environ["NAMESPACE"], os.environ["IMAGE"]


def connect(path, subprotocols=None, certificate=True):
    settings = client.Configuration.get_default_copy()
    trust = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if certificate:
        trust.load_cert_chain(settings.cert_file, settings.key_file)
    url = settings.host.replace("https", "wss") + f"/api/v1/namespaces/{NAMESPACE}/{path}"
    return websocket.create_connection(url, sslopt={"context": trust}, subprotocols=subprotocols, timeout=60)


def refused(code, *arguments, **named):
    try:
        connect(*arguments, **named)
    except websocket.WebSocketBadStatusException as error:
        assert error.status_code == code, error
        return
    raise AssertionError(f"not refused with {code}")


def everything(socket):
    pieces = []
    while True:
        code, data = socket.recv_data()
        if code == websocket.ABNF.OPCODE_CLOSE:
            return pieces
        pieces.append((code, data))


def watches(core):
    socket = connect("configmaps?watch=1&fieldSelector=metadata.name%3Da")
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    core.delete_namespaced_config_map("a", NAMESPACE)
    for expected in ["ADDED", "DELETED"]:
        event = json.loads(socket.recv())
        assert (event["type"], event["object"]["data"]) == (expected, {"k": "v"}), event
    socket.close()
    ends = [code for code, _ in everything(connect("configmaps?watch=1&resourceVersion=1&timeoutSeconds=1"))]
    assert set(ends) <= {websocket.ABNF.OPCODE_TEXT}, ends


def logs(core):
    script = "echo one; sleep 1; echo two"
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}
    core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never", "containers": [container]}})
    while core.read_namespaced_pod("p", NAMESPACE).status.phase == "Pending":
        pass
    for subprotocols in [None, ["binary.k8s.io"], ["other", "base64.binary.k8s.io"]]:
        socket = connect("pods/p/log?follow=true", subprotocols)
        assert socket.getsubprotocol() == (subprotocols[-1] if subprotocols else None)
        pieces = everything(socket)
        encoded = subprotocols and subprotocols[-1].startswith("base64")
        kind = websocket.ABNF.OPCODE_TEXT if encoded else websocket.ABNF.OPCODE_BINARY
        assert pieces[0] == (kind, b""), pieces
        assert {code for code, _ in pieces} == {kind}, pieces
        text = b"".join(base64.b64decode(data) if encoded else data for _, data in pieces)
        assert text == b"one\ntwo\n", pieces
    refused(403, "pods/p/log", ["other"])
    refused(404, "pods/none/log")


def tokens(core):
    body = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
    token = core.create_namespaced_service_account_token("default", NAMESPACE, body).status.token
    shown = "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    # Whoever is known may not, and whoever is not known may not ask.
    refused(403, "configmaps?watch=1", [shown, "binary.k8s.io"], certificate=False)
    refused(401, "configmaps?watch=1", ["binary.k8s.io"], certificate=False)


def main():
    config.load_kube_config()
    core = client.CoreV1Api()
    watches(core)
    logs(core)
    tokens(core)
    print("all done")


main()
