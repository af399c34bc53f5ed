"""What programs with the official Python client do: typed calls, watches, dynamic kinds, apply, logs and exec."""

import os

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.stream import stream

NAMESPACE, IMAGE = os.environ["NAMESPACE"], os.environ["IMAGE"]


def pod(name, script):
    container = {"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"by": "python"}}, "spec": spec}


def refused(code, call):
    try:
        call()
    except client.ApiException as error:
        assert error.status == code, (error.status, error.body)
        return
    raise AssertionError(f"not refused with {code}")


def config_maps(core):
    made = core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    stale = core.read_namespaced_config_map("a", NAMESPACE)
    made.data["k"] = "w"
    assert core.replace_namespaced_config_map("a", NAMESPACE, made).data == {"k": "w"}
    stale.data["k"] = "x"
    refused(409, lambda: core.replace_namespaced_config_map("a", NAMESPACE, stale))
    assert core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"z": "1"}}).data == {"k": "w", "z": "1"}
    refused(404, lambda: core.read_namespaced_config_map("b", NAMESPACE))
    refused(422, lambda: core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "No"}}))
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "c"}})
    page = core.list_namespaced_config_map(NAMESPACE, limit=1)
    assert len(page.items) == 1 and page.metadata._continue, page.metadata


def pods(core):
    core.create_namespaced_pod(NAMESPACE, pod("once", "echo a line; exit 3"))
    core.create_namespaced_pod(NAMESPACE, pod("stays", "sleep 100000"))
    phases, ready = {}, False
    for event in watch.Watch().stream(core.list_namespaced_pod, NAMESPACE, label_selector="by=python", timeout_seconds=60):
        seen = event["object"]
        phases[seen.metadata.name] = seen.status.phase
        if phases == {"once": "Failed", "stays": "Running"}:
            ready = True
            break
    assert ready, phases
    once = core.read_namespaced_pod("once", NAMESPACE)
    assert once.status.container_statuses[0].state.terminated.exit_code == 3
    assert core.read_namespaced_pod_log("once", NAMESPACE) == "a line\n"
    told = stream(core.connect_get_namespaced_pod_exec, "stays", NAMESPACE, command=["sh", "-c", "echo $((6 * 7))"],
                  stdout=True, stderr=True, stdin=False, tty=False)
    assert told == "42\n", told
    core.delete_collection_namespaced_pod(NAMESPACE, label_selector="by=python")


def kinds(api):
    deployments = dynamic.DynamicClient(api).resources.get(api_version="apps/v1", kind="Deployment")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": IMAGE}]}}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": 2, "paused": True, "selector": {"matchLabels": {"a": "b"}}, "template": template}}
    assert deployments.create(namespace=NAMESPACE, body=body).spec.replicas == 2
    patient = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"minReadySeconds": 3}}
    assert deployments.server_side_apply(namespace=NAMESPACE, field_manager="python", body=patient).spec.minReadySeconds == 3
    assert client.AppsV1Api().read_namespaced_deployment_scale("d", NAMESPACE).spec.replicas == 2
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    utils.create_from_yaml(api, yaml_objects=[secret], namespace=NAMESPACE)
    assert client.CoreV1Api().read_namespaced_secret("s", NAMESPACE).data == {"a": "Yg=="}
    review = client.V1SelfSubjectAccessReview(spec={"resourceAttributes": {"verb": "get", "resource": "pods"}})
    assert client.AuthorizationV1Api().create_self_subject_access_review(review).status.allowed


def main():
    config.load_kube_config()
    assert client.VersionApi().get_code().git_version.startswith("v1.35")
    assert len(client.ApisApi().get_api_versions().groups) > 15
    config_maps(client.CoreV1Api())
    pods(client.CoreV1Api())
    kinds(client.ApiClient())
    print("all done")


main()
