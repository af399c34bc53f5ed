//! PersistentVolumeClaims: binding, dynamic provisioning, mounting and reclaiming.

use crate::workload;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

fn claim(name: &str, spec: &Value) -> Value {
    let mut all = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": all})
}

fn volume(name: &str, spec: &Value) -> Value {
    let mut all = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": all})
}

/// Returns the spec of a `local` volume for a directory of this node.
fn local(kubectl: &Kubectl, path: &Path) -> Value {
    let node = kubectl.run("get nodes -o jsonpath={.items[0].metadata.name}").ok();
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({"local": {"path": path}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}})
}

/// Returns a Pod that runs a script with a volume at `/data`, and then waits.
fn pod(name: &str, source: &Value, script: &str) -> PodBuilder {
    PodBuilder::new(name)
        .grace_period(0)
        .script(&format!("{script}; sleep 100000"))
        .volume("data", source)
        .mount("data", "/data")
}

fn claim_volume(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

fn apply(kubectl: &Kubectl, objects: &[Value]) {
    objects.iter().for_each(|object| kubectl.apply(&object.to_string()));
}

fn phase(kubectl: &Kubectl, object: &str, expected: &str) {
    kubectl.wait_value(object, "/status/phase", &json!(expected));
}

fn volume_of(kubectl: &Kubectl, claim: &str) -> String {
    let name = kubectl.value(&format!("pvc/{claim}"), "/spec/volumeName");
    name.as_str().unwrap_or_default().to_owned()
}

#[e2e_test("a StatefulSet keeps its data until its claims are deleted")]
fn stateful_set_keeps_data_until_claims_are_deleted(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let template = json!({"metadata": {"name": "data"}, "spec": claim("data", &json!({}))["spec"]});
    let script = "hostname >> /data/who; sleep 100000";
    let container = json!({"command": ["sh", "-c", script], "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let spec = json!({"replicas": 2, "serviceName": "web", "volumeClaimTemplates": [template]});
    workload::apply(&kubectl, "StatefulSet", "web", &[&spec], &container);
    kubectl.run("rollout status statefulset/web --timeout=120s").ok();
    let row = kubectl.run("get pvc data-web-1 --no-headers").ok();
    let volume = volume_of(&kubectl, "data-web-1");
    assert_eq!(
        row.split_whitespace().take(6).collect::<Vec<_>>(),
        ["data-web-1", "Bound", &volume, "1Mi", "RWO", "standard"]
    );
    let before = kubectl.value("pod/web-1", "/metadata/uid");
    kubectl.run("delete pod web-1").ok();
    eventually("another Pod", || kubectl.get("pod/web-1").is_some_and(|pod| pod["metadata"]["uid"] != before));
    kubectl.wait_ready("web-1");
    kubectl.wait_for_output("exec web-1 -- cat /data/who", "web-1\nweb-1\n");
    let directory = cluster.data_dir().join("volumes").join(&volume);
    assert!(directory.join("who").is_file());
    kubectl.run("delete statefulset web").ok();
    kubectl.run("wait --for=delete pod -l app=web --timeout=60s").ok();
    assert!(directory.join("who").is_file(), "the volume must be kept with its claim");
    kubectl.run("delete pvc --all").ok();
    eventually("the volume to be deleted with its claim", || kubectl.get(&format!("pv/{volume}")).is_none());
    assert!(!directory.exists());
}

#[e2e_test("an existing PersistentVolume is bound, mounted and retained")]
fn existing_volume_is_bound_mounted_and_retained(cluster: &Cluster) {
    let (kubectl, directory) = (cluster.kubectl(), tempfile::tempdir().unwrap());
    let manual = json!({"storageClassName": "manual"});
    let mut spec = json!({"storageClassName": "manual", "hostPath": {"path": directory.path()}});
    spec["claimRef"] = json!({"namespace": kubectl.namespace(), "name": "c"});
    apply(&kubectl, &[volume("static", &spec), claim("c", &manual)]);
    phase(&kubectl, "pvc/c", "Bound");
    phase(&kubectl, "pv/static", "Bound");
    let reads = json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}});
    let refused = "echo two > /data/f || echo refused";
    apply(
        &kubectl,
        &[pod("writes", &claim_volume("c"), "echo one > /data/f").build(), pod("reads", &reads, refused).build()],
    );
    kubectl.wait_ready("writes");
    kubectl.wait_ready("reads");
    eventually("the write to be refused", || kubectl.run("logs reads").is_ok_and(|output| output.contains("refused")));
    kubectl.wait_for_output("exec reads -- cat /data/f", "one\n");
    assert_eq!(std::fs::read_to_string(directory.path().join("f")).unwrap(), "one\n");
    kubectl.run("delete pod writes reads").ok();
    kubectl.run("delete pvc c").ok();
    phase(&kubectl, "pv/static", "Released");
    assert_eq!(std::fs::read_to_string(directory.path().join("f")).unwrap(), "one\n");
    kubectl.run("delete pv static").ok();
}

#[e2e_test("a Pod waits until its PersistentVolumeClaim is bound")]
fn pod_waits_until_its_claim_is_bound(cluster: &Cluster) {
    let (kubectl, directory) = (cluster.kubectl(), tempfile::tempdir().unwrap());
    let waits = |text: &str| {
        let message = format!(
            "0/1 nodes are available: {text}. no new claims to deallocate, preemption: 0/1 nodes are available: 1 \
             Preemption is not helpful for scheduling."
        );
        eventually(&format!("it waits: {text}"), || {
            kubectl.value("pod/p", "/status/conditions/0/message") == message.as_str()
                && kubectl.events("p").contains(&("FailedScheduling".to_owned(), message.clone()))
        });
    };
    apply(&kubectl, &[pod("p", &claim_volume("c"), "true").build()]);
    waits("persistentvolumeclaim \"c\" not found");
    apply(&kubectl, &[claim("c", &json!({"storageClassName": ""}))]);
    waits("pod has unbound immediate PersistentVolumeClaims");
    let message = "no persistent volumes available for this claim and no storage class is set";
    eventually("the FailedBinding Event", || {
        kubectl.events("c").contains(&("FailedBinding".to_owned(), message.to_owned()))
    });
    let mut spec = local(&kubectl, directory.path());
    spec["claimRef"] = json!({"namespace": kubectl.namespace(), "name": "c"});
    apply(&kubectl, &[volume("late", &spec)]);
    kubectl.wait_ready("p");
    kubectl.run("delete pod p").ok();
    kubectl.run("delete pvc c").ok();
    kubectl.run("delete pv late").ok();
}

#[e2e_test("an ephemeral volume is created and deleted with its Pod")]
fn ephemeral_volume_lives_with_its_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let template = json!({"spec": claim("-", &json!({}))["spec"]});
    let ephemeral = json!({"ephemeral": {"volumeClaimTemplate": template}});
    apply(&kubectl, &[pod("p", &ephemeral, "echo x > /data/f").build()]);
    kubectl.wait_ready("p");
    kubectl.wait_for_output("exec p -- cat /data/f", "x\n");
    let volume = volume_of(&kubectl, "p-data");
    kubectl.run("delete pod p").ok();
    eventually("the claim and its volume to be deleted", || {
        kubectl.get("pvc/p-data").is_none() && kubectl.get(&format!("pv/{volume}")).is_none()
    });
}

#[e2e_test("a ReadWriteOncePod claim is used by one Pod at a time")]
fn read_write_once_pod_claim_has_one_user(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    apply(
        &kubectl,
        &[claim("c", &json!({"accessModes": ["ReadWriteOncePod"]})), pod("first", &claim_volume("c"), "true").build()],
    );
    kubectl.wait_ready("first");
    apply(&kubectl, &[pod("second", &claim_volume("c"), "true").build()]);
    let text = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    eventually("the second Pod to be unschedulable", || {
        kubectl.events("second").iter().any(|(_, message)| message.contains(text))
    });
    kubectl.run("delete pod first").ok();
    kubectl.wait_ready("second");
    kubectl.run("delete pod second").ok();
    kubectl.run("delete pvc c").ok();
}

#[e2e_test("a local volume gets the fsGroup of its Pod")]
fn local_volume_gets_fs_group(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let user = json!({"securityContext": {"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 4321}});
    let script = "touch /data/f; stat -c '%u %g' /data/f";
    apply(&kubectl, &[claim("c", &json!({})), pod("p", &claim_volume("c"), script).spec(&user).build()]);
    kubectl.wait_ready("p");
    eventually("the output", || kubectl.run("logs p").is_ok_and(|output| output == "1234 4321\n"));
    kubectl.run("delete pod p").ok();
    kubectl.run("delete pvc c").ok();
}

/// The data of a mounted volume must never be deleted with its mount point.
#[e2e_test("volumes survive SIGKILL of Podium and removal of the cluster")]
fn volumes_survive_sigkill_and_cluster_removal() {
    let mut cluster = Cluster::start(&[]);
    let (kubectl, directory) = (cluster.kubectl_in("default"), tempfile::tempdir().unwrap());
    let (host, own) = (directory.path().join("host"), directory.path().join("own"));
    for path in [&host, &own] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("kept"), "kept").unwrap();
    }
    let mut objects = Vec::new();
    for (name, mut spec) in [("host", json!({"hostPath": {"path": host}})), ("own", local(&kubectl, &own))] {
        spec["claimRef"] = json!({"namespace": "default", "name": name});
        spec["storageClassName"] = json!("manual");
        objects.extend([volume(name, &spec), claim(name, &json!({"storageClassName": "manual"}))]);
        let script = "cat /data/kept >> /data/copy; until rm /data/end; do sleep 1; done 2> /dev/null; exit";
        objects.push(pod(name, &claim_volume(name), script).build());
    }
    objects.extend([claim("made", &json!({})), pod("made", &claim_volume("made"), "echo kept > /data/copy").build()]);
    apply(&kubectl, &objects);
    let container = |pod: &str| kubectl.value(&format!("pod/{pod}"), "/status/containerStatuses/0/containerID");
    let pods = ["host", "own", "made"];
    pods.iter().for_each(|pod| kubectl.wait_ready(pod));
    let before = pods.map(container);
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
    pods.iter().for_each(|pod| kubectl.wait_ready(pod));
    assert_eq!(pods.map(container), before);
    // A restarted container sees the same data.
    std::fs::write(own.join("end"), "").unwrap();
    eventually("the restarted container", || {
        std::fs::read_to_string(own.join("copy")).is_ok_and(|text| text == "keptkept")
    });
    // One Pod is deleted; the cluster is removed while the others run.
    kubectl.run("delete pod host").ok();
    cluster.stop_podium(Signal::SIGKILL);
    let down = cluster.podium(&["down"]).output().unwrap();
    assert!(down.status.success(), "{down:?}");
    for path in [&host, &own] {
        assert_eq!(std::fs::read_to_string(path.join("kept")).unwrap(), "kept", "{}", path.display());
    }
}

#[e2e_test("a deleted default StorageClass is not recreated")]
fn deleted_storage_class_is_not_recreated() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    assert!(kubectl.run("get sc").ok().contains("standard (default)"));
    kubectl.run("delete sc standard").ok();
    cluster.stop_podium(Signal::SIGTERM);
    cluster.start_podium();
    assert!(kubectl.get("sc/standard").is_none());
}

#[e2e_test("provisioning and deletion of volumes recover from SIGKILL at any moment")]
fn volume_provisioning_recovers_from_sigkill() {
    const MOMENTS: [u64; 8] = [0, 2, 5, 10, 15, 20, 30, 50];
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let names = || {
        let kept = std::fs::read_dir(cluster_volumes(&kubectl)).unwrap();
        kept.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    for moment in MOMENTS {
        let name = format!("p{moment}");
        apply(&kubectl, &[claim(&name, &json!({}))]);
        apply(&kubectl, &[pod(&name, &claim_volume(&name), "true").build()]);
        kill_after(&mut cluster, moment);
    }
    for moment in MOMENTS {
        kubectl.wait_ready(&format!("p{moment}"));
    }
    let volumes = || kubectl.run("get pv -o jsonpath={.items[*].metadata.name}").ok();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let known = sorted(volumes().split_whitespace().map(str::to_owned).collect());
    assert_eq!((known.len(), &known), (MOMENTS.len(), &sorted(names())));
    kubectl.run("delete pods --all").ok();
    for moment in MOMENTS {
        kubectl.run(&format!("delete pvc p{moment} --wait=false")).ok();
        kill_after(&mut cluster, moment);
    }
    eventually("no volumes and directories", || volumes().is_empty() && names().is_empty());
}

/// Kills Podium after this many milliseconds, and starts it again.
#[expect(clippy::disallowed_methods, reason = "not a wait for anything: the moment of death is the test's input")]
fn kill_after(cluster: &mut Cluster, milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
    cluster.stop_podium(Signal::SIGKILL);
    cluster.start_podium();
}

/// Returns the directory of provisioned volumes.
fn cluster_volumes(kubectl: &Kubectl) -> std::path::PathBuf {
    kubectl.kubeconfig().parent().unwrap().join("volumes")
}
