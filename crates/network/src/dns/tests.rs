//! Tests of DNS, from API objects to answers.

use super::{
    answer::{Reply, Transport, of_alias, reply},
    zone::Zone,
};
use domain::{
    base::{
        Message, MessageBuilder, Name, Question, Ttl,
        iana::{Class, Rtype},
    },
    rdata::{A, AllRecordData},
};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use serde_json::{Value, json};
use std::sync::Arc;

fn zone() -> Zone {
    let service = |name: &str, spec: Value| -> Arc<Service> {
        let object = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        Arc::new(serde_json::from_value(object).expect("a Service"))
    };
    let http = json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]);
    let services = [
        service("web", json!({"clusterIP": "10.96.7.7", "ports": http})),
        service("db", json!({"clusterIP": "None"})),
        service("many", json!({"clusterIP": "None"})),
        service("empty", json!({"clusterIP": "None"})),
        service("out", json!({"type": "ExternalName", "externalName": "Www.Example.COM."})),
        service("in", json!({"type": "ExternalName", "externalName": "web.shop.svc.cluster.local"})),
        service("circle", json!({"type": "ExternalName", "externalName": "circle.shop.svc.cluster.local"})),
    ];
    let slice = |service: &str, endpoints: Value| -> Arc<EndpointSlice> {
        let object = json!({"metadata": {"name": service, "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}], "endpoints": endpoints});
        Arc::new(serde_json::from_value(object).expect("an EndpointSlice"))
    };
    let many: Vec<Value> = (1..=200).map(|n| json!({"addresses": [format!("10.1.0.{n}")]})).collect();
    let slices = [
        slice(
            "db",
            json!([
                {"addresses": ["10.0.0.1"], "hostname": "db-0", "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"]},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": false}},
            ]),
        ),
        slice("many", json!(many)),
        // Slice of a Service with a ClusterIP: its endpoints have no names.
        slice("web", json!([{"addresses": ["10.0.0.9"]}])),
    ];
    Zone::new("cluster.local", &services, &slices)
}

fn query(name: &str, kind: Rtype) -> Vec<u8> {
    let mut question = MessageBuilder::new_vec().question();
    question.header_mut().set_rd(true);
    question.push(Question::new_in(Name::vec_from_str(name).expect("a name"), kind)).expect("space");
    question.finish()
}

/// `CODE flags: answer, ... / additional, ...`; records without the names of their owners, aliases with.
fn show(message: &[u8]) -> String {
    let message = Message::from_octets(message).expect("a message");
    let section = |records: domain::base::message::RecordSection<'_, &[u8]>| -> Vec<String> {
        let records = records.flatten().filter_map(|r| r.into_record::<AllRecordData<_, _>>().ok().flatten());
        records.map(|r| format!("{} {}", r.rtype(), r.data()).trim_end_matches('.').to_owned()).collect()
    };
    let header = message.header();
    let truncated = if header.tc() { " truncated" } else { "" };
    let (answer, records) = (section(message.answer().expect("answers")), section(message.additional().expect("more")));
    let additional = if records.is_empty() { String::new() } else { format!(" / {}", records.join(", ")) };
    format!("{}{truncated}: {}{additional}", header.rcode(), answer.join(", "))
}

#[track_caller]
fn check(name: &str, kind: Rtype, expected: &str) {
    let shown = match reply(&zone(), &query(name, kind), Transport::Udp, 0) {
        Some(Reply::Answer(answer)) => show(&answer),
        Some(Reply::Forward) => "forward".to_owned(),
        Some(Reply::Alias { name, .. }) => format!("alias {name}"),
        None => "nothing".to_owned(),
    };
    assert_eq!(shown, expected, "{name} {kind}");
}

#[test]
fn service_resolves_to_cluster_ip() {
    check("web.shop.svc.cluster.local.", Rtype::A, "NOERROR: A 10.96.7.7");
    check("WEB.shop.SVC.cluster.local.", Rtype::A, "NOERROR: A 10.96.7.7");
    check("web.shop.svc.cluster.local.", Rtype::AAAA, "NOERROR: ");
    check("nobody.shop.svc.cluster.local.", Rtype::A, "NXDOMAIN: ");
    check("10-0-0-9.web.shop.svc.cluster.local.", Rtype::A, "NXDOMAIN: ");
}

#[test]
fn headless_service_resolves_to_ready_endpoints() {
    check("db.shop.svc.cluster.local.", Rtype::A, "NOERROR: A 10.0.0.1, A 10.0.0.2");
    check("db-0.db.shop.svc.cluster.local.", Rtype::A, "NOERROR: A 10.0.0.1");
    check("10-0-0-2.db.shop.svc.cluster.local.", Rtype::A, "NOERROR: A 10.0.0.2");
    check("10-0-0-1.db.shop.svc.cluster.local.", Rtype::A, "NXDOMAIN: ");
    check("empty.shop.svc.cluster.local.", Rtype::A, "NXDOMAIN: ");
}

#[test]
fn named_port_has_srv_record() {
    let web = "SRV 0 100 80 web.shop.svc.cluster.local / A 10.96.7.7";
    check("_http._tcp.web.shop.svc.cluster.local.", Rtype::SRV, &format!("NOERROR: {web}"));
    let db = "SRV 0 50 5432 10-0-0-2.db.shop.svc.cluster.local, SRV 0 50 5432 db-0.db.shop.svc.cluster.local / A 10.0.0.2, A 10.0.0.1";
    check("_sql._tcp.db.shop.svc.cluster.local.", Rtype::SRV, &format!("NOERROR: {db}"));
    check("_sql._udp.db.shop.svc.cluster.local.", Rtype::SRV, "NXDOMAIN: ");
    check("_tcp.db.shop.svc.cluster.local.", Rtype::SRV, "NOERROR: ");
}

#[test]
fn cname_is_returned_and_followed() {
    check("out.shop.svc.cluster.local.", Rtype::A, "alias www.example.com");
    check("out.shop.svc.cluster.local.", Rtype::CNAME, "NOERROR: CNAME www.example.com");
    check("in.shop.svc.cluster.local.", Rtype::A, "NOERROR: CNAME web.shop.svc.cluster.local, A 10.96.7.7");
    let loop_answer = ["CNAME circle.shop.svc.cluster.local"; 8].join(", ");
    check("circle.shop.svc.cluster.local.", Rtype::A, &format!("NOERROR: {loop_answer}"));
}

#[test]
fn forwarded_answer_follows_cname() {
    let question = query("out.shop.svc.cluster.local.", Rtype::A);
    let Some(Reply::Alias { name, question: next }) = reply(&zone(), &question, Transport::Udp, 0) else {
        panic!("no alias")
    };
    let forwarded_question = Message::from_octets(next.as_slice()).expect("a question");
    let mut upstream_answer =
        MessageBuilder::new_vec().start_answer(&forwarded_question, domain::base::iana::Rcode::NOERROR).expect("space");
    let owner: Name<Vec<u8>> = Name::vec_from_str("www.example.com").expect("a name");
    upstream_answer.push((owner, Class::IN, Ttl::from_secs(60), A::from_octets(192, 0, 2, 1))).expect("space");
    let combined = of_alias(&question, &name, &upstream_answer.finish(), Transport::Udp).expect("an answer");
    assert_eq!(show(&combined), "NOERROR: CNAME www.example.com, A 192.0.2.1");
}

#[test]
fn service_address_has_ptr_record() {
    check("7.7.96.10.in-addr.arpa.", Rtype::PTR, "NOERROR: PTR web.shop.svc.cluster.local");
    check("1.0.0.10.in-addr.arpa.", Rtype::PTR, "NOERROR: PTR db-0.db.shop.svc.cluster.local");
    check("9.9.9.9.in-addr.arpa.", Rtype::PTR, "forward");
}

#[test]
fn dashed_pod_address_resolves() {
    check("10-0-0-7.shop.pod.cluster.local.", Rtype::A, "NOERROR: A 10.0.0.7");
    check("10-0-0-7.nowhere.pod.cluster.local.", Rtype::A, "NOERROR: A 10.0.0.7");
    check("nonsense.shop.pod.cluster.local.", Rtype::A, "NXDOMAIN: ");
    check("10-0-0-7.pod.cluster.local.", Rtype::A, "NXDOMAIN: ");
}

#[test]
fn empty_non_terminals_exist_and_other_names_are_forwarded() {
    check("shop.svc.cluster.local.", Rtype::A, "NOERROR: ");
    check("cluster.local.", Rtype::A, "NOERROR: ");
    check("notcluster.local.", Rtype::A, "forward");
    check("example.com.", Rtype::A, "forward");
    check("dns-version.cluster.local.", Rtype::TXT, "NOERROR: TXT \"1.1.0\"");
    check("cluster.local.", Rtype::NS, "NOERROR: NS ns.dns.cluster.local");
}

/// Checks the number of addresses and the TC flag, for a UDP payload size.
#[track_caller]
fn check_size(kind: Rtype, payload_size: Option<u16>, transport: Transport, expected: (usize, bool)) {
    let mut question = MessageBuilder::new_vec().question();
    let name = Name::<Vec<u8>>::vec_from_str("many.shop.svc.cluster.local.").expect("a name");
    question.push(Question::new_in(name, kind)).expect("space");
    let mut question = question.additional();
    if let Some(size) = payload_size {
        let set = |opt: &mut domain::base::message_builder::OptBuilder<'_, Vec<u8>>| {
            opt.set_udp_payload_size(size);
            Ok(())
        };
        question.opt(set).expect("space");
    }
    let Some(Reply::Answer(answer)) = reply(&zone(), &question.finish(), transport, 0) else { panic!("no answer") };
    let limit = if transport == Transport::Tcp { 65_535 } else { payload_size.unwrap_or(512).into() };
    assert!(answer.len() <= limit, "{} of {limit} bytes", answer.len());
    let answer = Message::from_octets(answer).expect("a message");
    assert_eq!((answer.opt().is_some(), answer.header().aa()), (payload_size.is_some(), true));
    assert_eq!((usize::from(answer.header_counts().ancount()), answer.header().tc()), expected);
}

#[test]
fn large_udp_answer_is_truncated_and_retried_over_tcp() {
    check_size(Rtype::A, None, Transport::Udp, (29, true));
    check_size(Rtype::A, Some(512), Transport::Udp, (28, true));
    check_size(Rtype::A, Some(1232), Transport::Udp, (73, true));
    check_size(Rtype::A, None, Transport::Tcp, (200, false));
    check_size(Rtype::A, Some(512), Transport::Tcp, (200, false));
}

#[test]
fn answer_without_additional_records_is_not_truncated() {
    let record_counts = |count: usize| {
        let endpoints: Vec<Value> = (1..=count).map(|n| json!({"addresses": [format!("10.1.0.{n}")]})).collect();
        let (service, slice) = (json!({"clusterIP": "None"}), json!(endpoints));
        let service = json!({"metadata": {"name": "few", "namespace": "shop"}, "spec": service});
        let slice = json!({"metadata": {"name": "few", "namespace": "shop", "labels": {"kubernetes.io/service-name": "few"}},
            "addressType": "IPv4", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}], "endpoints": slice});
        let read = "an object";
        let services = [Arc::new(serde_json::from_value(service).expect(read))];
        let zone = Zone::new("cluster.local", &services, &[Arc::new(serde_json::from_value(slice).expect(read))]);
        let question = query("_sql._tcp.few.shop.svc.cluster.local.", Rtype::SRV);
        let Some(Reply::Answer(answer)) = reply(&zone, &question, Transport::Udp, 0) else { panic!("no answer") };
        let answer = Message::from_octets(answer).expect("a message");
        let counts = answer.header_counts();
        (counts.ancount(), counts.arcount(), answer.header().tc())
    };
    assert_eq!(record_counts(2), (2, 2, false));
    let (answers, additional, is_cut) = record_counts(6);
    assert!(answers == 6 && additional < 6 && !is_cut, "{answers} {additional} {is_cut}");
}

#[test]
fn addresses_are_rotated() {
    let question = query("db.shop.svc.cluster.local.", Rtype::A);
    let first = |turn| match reply(&zone(), &question, Transport::Udp, turn) {
        Some(Reply::Answer(answer)) => show(&answer),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (first(1), first(2)),
        ("NOERROR: A 10.0.0.2, A 10.0.0.1".into(), "NOERROR: A 10.0.0.1, A 10.0.0.2".into())
    );
}

#[test]
fn invalid_query_is_ignored_and_unsupported_is_refused() {
    let zone = zone();
    for bad in [&b""[..], b"x", &[0; 11]] {
        assert_eq!(reply(&zone, bad, Transport::Udp, 0), None, "{bad:?}");
    }
    let mut answer = query("web.shop.svc.cluster.local.", Rtype::A);
    answer[2] |= 0x80;
    assert_eq!(reply(&zone, &answer, Transport::Udp, 0), None);
    let code = |message: &[u8]| match reply(&zone, message, Transport::Udp, 0) {
        Some(Reply::Answer(answer)) => show(&answer),
        other => panic!("{other:?}"),
    };
    let mut notify = query("web.shop.svc.cluster.local.", Rtype::A);
    notify[2] |= 0x20;
    assert_eq!(code(&notify), "NOTIMP: ");
    assert_eq!(code(&[0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "FORMERR: ");
    let mut cut = query("web.shop.svc.cluster.local.", Rtype::A);
    cut.truncate(20);
    assert_eq!(code(&cut), "FORMERR: ");
}
