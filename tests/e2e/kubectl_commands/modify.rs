//! `apply`, `create`, `replace`, `diff`, `edit`, `label`, `annotate`, `patch` and `set`.

use super::{pod, shell, shell_with_pod};
use serde_json::json;
use tests::{Cluster, e2e_test};

const DOCUMENTS: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {k: v}
---
apiVersion: v1
kind: Secret
metadata: {name: b}
stringData: {k: v}
";

#[e2e_test("kubectl apply says created, unchanged or configured")]
fn apply_says_created_unchanged_or_configured(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("other.yaml", pod("p", "back"));
    shell.file("image.yaml", pod("p", "back").replace("sleep 100000", "sleep 5"));
    shell.check(&[
        ("kubectl apply -f pod.yaml --dry-run=client", 0, "pod/p created (dry run)"),
        ("kubectl apply -f pod.yaml --dry-run=server", 0, "pod/p created (server dry run)"),
        ("kubectl get pods", 0, "No resources found in test-... namespace."),
        ("kubectl apply -f pod.yaml", 0, "pod/p created"),
        ("kubectl apply -f pod.yaml", 0, "pod/p unchanged"),
        ("kubectl apply -f other.yaml --dry-run=server", 0, "pod/p configured (server dry run)"),
        ("kubectl get pod p -o jsonpath={.metadata.labels.tier}", 0, "front"),
        ("kubectl apply -f other.yaml -o name", 0, "pod/p"),
        ("kubectl get pod p -o jsonpath={.metadata.labels.tier}", 0, "back"),
        (
            "kubectl apply view-last-applied pod/p",
            0,
            "apiVersion: v1 kind: Pod metadata: annotations: {} ... tier: back ...",
        ),
        (
            "kubectl apply -f image.yaml",
            1,
            "The Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than \
             `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,...",
        ),
        ("kubectl delete -f other.yaml", 0, "pod \"p\" deleted..."),
    ]);
}

#[e2e_test("kubectl apply takes Lists, several documents and directories")]
fn apply_takes_lists_documents_and_directories(cluster: &Cluster) {
    let shell = shell(cluster);
    let config_map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [config_map("one"), config_map("two")]});
    shell.file("list.json", list.to_string());
    shell.file("documents.yaml", DOCUMENTS);
    std::fs::create_dir(shell.dir().join("dir")).unwrap();
    shell.file("dir/1.json", config_map("three").to_string());
    shell.file("dir/2.yaml", DOCUMENTS);
    shell.check(&[
        ("kubectl apply -f list.json", 0, "configmap/one created configmap/two created"),
        ("kubectl apply -f list.json", 0, "configmap/one unchanged configmap/two unchanged"),
        ("kubectl apply -f documents.yaml", 0, "configmap/a created secret/b created"),
        ("kubectl apply -f dir", 0, "configmap/three created configmap/a unchanged secret/b configured"),
        ("kubectl get secret b -o jsonpath={.data.k}", 0, "dg=="),
        (
            "kubectl delete -f list.json -f documents.yaml",
            0,
            "configmap \"one\" deleted...configmap \"two\" deleted...configmap \"a\" deleted...secret \"b\" deleted...",
        ),
        ("kubectl apply -f nothing.yaml", 1, "error: the path \"nothing.yaml\" does not exist"),
    ]);
}

#[e2e_test("kubectl create fails on an existing object")]
fn create_fails_on_existing_object(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("documents.yaml", DOCUMENTS);
    shell.file("generated.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: made-}\n");
    shell.check(&[
        ("kubectl create -f documents.yaml --dry-run=server -o name", 0, "configmap/a secret/b"),
        ("kubectl create -f documents.yaml", 0, "configmap/a created secret/b created"),
        (
            "kubectl create -f documents.yaml",
            1,
            "Error from server (AlreadyExists): error when creating \"documents.yaml\": configmaps \"a\" already exists \
             Error from server (AlreadyExists): error when creating \"documents.yaml\": secrets \"b\" already exists",
        ),
        ("kubectl create -f generated.yaml", 0, "configmap/made-... created"),
        ("kubectl create -f generated.yaml", 0, "configmap/made-... created"),
        ("kubectl apply -f generated.yaml", 1, "error: from made-: cannot use generate name with apply"),
        (
            "kubectl apply -f documents.yaml",
            0,
            "configmap/a configured secret/b configured \
             Warning: resource configmaps/a is missing the kubectl.kubernetes.io/last-applied-configuration annotation...",
        ),
    ]);
    let names = shell.run("kubectl get configmaps -o name").ok();
    assert_eq!(names.lines().filter(|l| l.starts_with("configmap/made-")).count(), 2, "{names}");
}

#[e2e_test("kubectl replace needs an existing object at the given resourceVersion")]
fn replace_needs_object_and_resource_version(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("documents.yaml", DOCUMENTS);
    shell.check(&[
        (
            "kubectl replace -f documents.yaml",
            1,
            "Error from server (NotFound): error when replacing \"documents.yaml\": configmaps \"a\" not found \
             Error from server (NotFound): error when replacing \"documents.yaml\": secrets \"b\" not found",
        ),
        ("kubectl create -f documents.yaml", 0, "configmap/a created secret/b created"),
    ]);
    shell.file("stale.json", shell.run("kubectl get configmap a -o json").ok());
    shell.check(&[
        ("kubectl replace -f stale.json", 0, "configmap/a replaced"),
        ("kubectl label configmap a new=1", 0, "configmap/a labeled"),
        (
            "kubectl replace -f stale.json",
            1,
            "Error from server (Conflict): error when replacing \"stale.json\": Operation cannot be fulfilled on configmaps \
             \"a\": the object has been modified; please apply your changes to the latest version and try again",
        ),
    ]);
    let uid = || shell.kubectl().value("configmap/a", "/metadata/uid");
    let before = uid();
    shell.check(&[(
        "kubectl replace --force -f documents.yaml",
        0,
        "configmap \"a\" deleted...secret \"b\" deleted...configmap/a replaced secret/b replaced",
    )]);
    assert_ne!(uid(), before);
}

#[e2e_test("kubectl diff shows what apply would change")]
fn diff_shows_changes(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("other.yaml", pod("p", "back"));
    shell.check(&[
        ("kubectl diff -f pod.yaml", 1, "diff ... +kind: Pod ... +spec: ..."),
        ("kubectl apply -f pod.yaml", 0, "pod/p created"),
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
        ("kubectl diff -f pod.yaml", 0, ""),
        ("kubectl diff -f other.yaml", 1, "diff ... - tier: front + tier: back ..."),
        ("kubectl get pod p -o jsonpath={.metadata.labels.tier}", 0, "front"),
    ]);
}

#[e2e_test("kubectl edit writes the edited object")]
fn edit_writes_the_edited_object(cluster: &Cluster) {
    let shell = shell(cluster);
    // The copy that kubectl keeps of a refused edit is removed with the shell's directory.
    let keep = format!("TMPDIR={}", shell.dir().display());
    let refused = format!("{keep} EDITOR='sed -i s/Always/Never/' kubectl edit pod p");
    shell.check(&[
        ("kubectl apply -f pod.yaml", 0, "pod/p created"),
        ("EDITOR='sed -i s/front/edited/' kubectl edit pod p", 0, "pod/p edited"),
        ("kubectl get pod p -o jsonpath={.metadata.labels.tier}", 0, "edited"),
        ("EDITOR=true kubectl edit pod p", 0, "Edit cancelled, no changes made."),
        ("EDITOR=false kubectl edit pod p", 1, "error: there was a problem with the editor \"false\""),
        (
            &refused,
            1,
            "error: pods \"p\" is invalid A copy of your changes has been stored to \"...\" error: Edit cancelled, no valid changes were saved.",
        ),
        ("EDITOR=true kubectl edit pod nobody", 1, "Error from server (NotFound): pods \"nobody\" not found"),
    ]);
}

#[e2e_test("kubectl label and annotate add, keep, overwrite and remove")]
fn label_and_annotate_add_overwrite_and_remove(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("documents.yaml", DOCUMENTS);
    shell.check(&[
        ("kubectl apply -f documents.yaml", 0, "configmap/a created secret/b created"),
        ("kubectl label secret b new=1", 0, "secret/b labeled"),
        ("kubectl label secret b new=1", 0, "secret/b not labeled"),
        ("kubectl label secret b new=2", 1, "error: 'new' already has a value (1), and --overwrite is false"),
        ("kubectl label secret b new=2 --overwrite", 0, "secret/b labeled"),
        ("kubectl label secret b --list", 0, "new=2"),
        ("kubectl get secret -L new", 0, "NAME TYPE DATA AGE NEW b Opaque 1 ... 2"),
        ("kubectl label secrets --all every=one", 0, "secret/b labeled"),
        ("kubectl label secret b new-", 0, "secret/b unlabeled"),
        ("kubectl label secret b new-", 0, "label \"new\" not found. secret/b not labeled"),
        ("kubectl label secrets -l every=one other=x", 0, "secret/b labeled"),
        (
            "kubectl label secret b 'bad key=1'",
            1,
            "The Secret \"b\" is invalid: metadata.labels: Invalid value: \"bad key\": name part must consist of alphanumeric characters...",
        ),
        ("kubectl label secret b --resource-version=1 old=1", 1, "Error from server (Conflict): Operation cannot be fulfilled on secrets \"b\": the object has been modified; please apply your changes to the latest version and try again"),
        ("kubectl annotate secret b about=one", 0, "secret/b annotated"),
        (
            "kubectl annotate secret b about=two",
            1,
            "error: --overwrite is false but found the following declared annotation(s): 'about' already has a value (one)",
        ),
        ("kubectl annotate secret b about='two words' --overwrite", 0, "secret/b annotated"),
        ("kubectl get secret b -o jsonpath={.metadata.annotations.about}", 0, "two words"),
        ("kubectl annotate secret b about-", 0, "secret/b annotated"),
        ("kubectl annotate secrets --all every=one", 0, "secret/b annotated"),
        ("kubectl get secret b -o jsonpath={.metadata.annotations.about}", 0, ""),
        ("kubectl label secret nobody a=b", 1, "Error from server (NotFound): secrets \"nobody\" not found"),
    ]);
}

#[e2e_test("kubectl patch sends JSON, merge and strategic merge patches")]
fn patch_supports_json_merge_and_strategic(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.check(&[
        ("kubectl apply -f pod.yaml", 0, "pod/p created"),
        // The kubelet does not change it at that time.
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
        (r#"kubectl patch pod p -p '{"metadata": {"labels": {"s": "1"}}}'"#, 0, "pod/p patched"),
        (r#"kubectl patch pod p -p '{"metadata": {"labels": {"s": "1"}}}'"#, 0, "pod/p patched (no change)"),
        // By name, the merge key of containers.
        (
            r#"kubectl patch pod p -p '{"spec": {"containers": [{"name": "c", "image": "docker.io/library/busybox:2"}]}}'"#,
            0,
            "pod/p patched",
        ),
        ("kubectl get pod p -o 'jsonpath={.spec.containers[*].image} {.spec.containers[*].command[0]}'", 0, "docker.io/library/busybox:2 sh"),
        (r#"kubectl patch pod p --type=merge -p '{"metadata": {"labels": {"s": null, "m": "1"}}}'"#, 0, "pod/p patched"),
        (r#"kubectl patch pod p --type=json -p '[{"op": "replace", "path": "/metadata/labels/m", "value": "2"}]'"#, 0, "pod/p patched"),
        ("kubectl get pod p -o 'jsonpath={.metadata.labels}'", 0, r#"{"app":"web","m":"2","tier":"front"}"#),
        (
            r#"kubectl patch pod p --type=json -p '[{"op": "test", "path": "/metadata/labels/m", "value": "7"}]'"#,
            1,
            "The request is invalid: ...",
        ),
        (
            r#"kubectl patch pod p -p '{"spec": {"restartPolicy": "Never"}}'"#,
            1,
            "The Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than ...",
        ),
        (r#"kubectl patch pod p --subresource=status -p '{"status": {"message": "patched"}}'"#, 0, "pod/p patched"),
        (r#"kubectl patch pod nobody -p '{}'"#, 1, "Error from server (NotFound): pods \"nobody\" not found"),
        ("kubectl patch pod p -p '{'", 1, "Error from server (BadRequest): error decoding patch: ..."),
        ("kubectl patch pod p --type=other -p '{}'", 1, "error: --type must be one of [json merge strategic], not \"other\""),
    ]);
}

#[e2e_test("kubectl set image changes a Pod's image and refuses other fields")]
fn set_image_changes_pod_image(cluster: &Cluster) {
    let shell = shell_with_pod(cluster);
    let image = "kubectl get pod p -o jsonpath={.spec.containers[0].image}";
    let other = "docker.io/library/busybox:other";
    shell.check(&[
        ("kubectl set image pod/p c=docker.io/library/busybox:other --dry-run=server", 0, "pod/p image updated (server dry run)"),
        (image, 0, test_images::BUSYBOX),
        ("kubectl set image pod/p c=docker.io/library/busybox:other", 0, "pod/p image updated"),
        (image, 0, other),
        ("kubectl set image pod/p nobody=x", 1, "error: unable to find container named \"nobody\""),
        (
            "kubectl set env pod/p A=b",
            1,
            "error: failed to patch env update to pod template: Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than ...",
        ),
    ]);
}
