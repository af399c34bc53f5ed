//! DNS messages (RFC 1035). Does no I/O.

use super::zone::{Entry, Found, Zone};
use domain::{
    base::{
        Message, MessageBuilder, Name, Question, Serial, Ttl,
        iana::{Class, Opcode, Rcode, Rtype},
        message_builder::{AdditionalBuilder, AnswerBuilder, AuthorityBuilder, PushError, StaticCompressor},
    },
    rdata::{A, AllRecordData, Cname, Ns, Ptr, Soa, Srv, Txt},
};
use std::net::Ipv4Addr;

type Target = StaticCompressor<Vec<u8>>;
type OwnedName = Name<Vec<u8>>;

/// TTL of answers: CoreDNS' default.
const TTL: Ttl = Ttl::from_secs(5);
/// UDP payload size without EDNS (RFC 1035), and the maximum that is sent (RFC 9715).
const SMALLEST: u16 = 512;
const LARGEST: u16 = 1232;
/// Size of an OPT record, in bytes (RFC 6891).
const OPT: usize = 11;

/// Result of answering a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Answer(Vec<u8>),
    /// The question is forwarded.
    Forward,
    /// The answer is a CNAME outside the zone, resolved by forwarding this question.
    Alias {
        name: String,
        question: Vec<u8>,
    },
}

/// Transport of a question, which limits the size of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// Answers a question; `None` if it is not a valid one. `turn` rotates the addresses.
pub(crate) fn reply(zone: &Zone, question: &[u8], transport: Transport, turn: usize) -> Option<Reply> {
    let message = Message::from_slice(question).ok().filter(|message| !message.header().qr())?;
    let message = &message.for_slice_ref();
    if message.header().opcode() != Opcode::QUERY {
        return Some(Reply::Answer(failure(message, Rcode::NOTIMP)));
    }
    let Ok(parsed) = message.sole_question() else {
        return Some(Reply::Answer(failure(message, Rcode::FORMERR)));
    };
    if parsed.qclass() != Class::IN {
        return Some(Reply::Answer(failure(message, Rcode::REFUSED)));
    }
    let name = parsed.qname().to_string().trim_end_matches('.').to_lowercase();
    let mut answer = Answer { zone, aliases: Vec::new(), turn, kind: parsed.qtype() };
    let reply = match answer.find(&name) {
        Found::Elsewhere => match answer.aliases.last() {
            None => Reply::Forward,
            Some(alias) => Reply::Alias {
                name: alias.clone(),
                question: build_question(alias, parsed.qtype(), message.header().id()).ok()?,
            },
        },
        found => Reply::Answer(answer.write(message, &found, transport)),
    };
    Some(reply)
}

/// Returns an answer without records, with a response code.
pub(crate) fn failure(question: &Message<&[u8]>, code: Rcode) -> Vec<u8> {
    let mut answer = builder().start_error(question, code);
    answer.header_mut().set_ra(true);
    answer.finish().into_target()
}

/// Returns SERVFAIL for a raw question; `None` if it is not a valid one.
pub(crate) fn failed(question: &[u8]) -> Option<Vec<u8>> {
    let message = Message::from_slice(question).ok()?;
    Some(failure(&message.for_slice_ref(), Rcode::SERVFAIL))
}

/// Appends the forwarded answer to the CNAME record.
pub(crate) fn of_alias(question: &[u8], alias: &str, forwarded: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let question = Message::from_slice(question).ok()?;
    let question = &question.for_slice_ref();
    let forwarded = Message::from_slice(forwarded).ok()?;
    let parsed = question.sole_question().ok()?;
    let mut answer = builder().start_answer(question, forwarded.header().rcode()).ok()?;
    answer.header_mut().set_ra(true);
    answer.set_push_limit(limit(question, transport));
    let mut push = || -> Result<(), PushError> {
        let target = owned(alias)?;
        answer.push((parsed.qname(), Class::IN, TTL, Cname::new(target)))?;
        for record in forwarded.answer().into_iter().flatten().flatten() {
            if let Ok(Some(record)) = record.into_record::<AllRecordData<_, _>>() {
                answer.push(record)?;
            }
        }
        Ok(())
    };
    if push().is_err() {
        answer.header_mut().set_tc(true);
    }
    Some(answer.finish().into_target())
}

struct Answer<'a> {
    zone: &'a Zone,
    /// CNAME chain, in order.
    aliases: Vec<String>,
    turn: usize,
    kind: Rtype,
}

impl<'a> Answer<'a> {
    /// Follows CNAMEs up to a maximum depth, for they may form a loop.
    fn find(&mut self, name: &str) -> Found<'a> {
        let mut found = self.zone.find(name);
        while let Found::Entry(entry) = &found {
            let Some(alias) = entry.alias.clone().filter(|_| self.kind != Rtype::CNAME && self.aliases.len() < 8)
            else {
                break;
            };
            found = self.zone.find(&alias);
            self.aliases.push(alias);
        }
        found
    }

    fn write(&self, question: &Message<&[u8]>, found: &Found<'_>, transport: Transport) -> Vec<u8> {
        let code = if matches!(found, Found::Entry(_)) { Rcode::NOERROR } else { Rcode::NXDOMAIN };
        let mut answer = builder().start_error(question, code);
        let header = answer.header_mut();
        header.set_aa(true);
        header.set_ra(true);
        let (limit, opt) = (limit(question, transport), question.opt().is_some());
        answer.set_push_limit(if opt { limit - OPT } else { limit });
        // A truncated answer sets TC, so that the resolver retries over TCP.
        if self.answers(&mut answer, question, found).is_err() {
            answer.header_mut().set_tc(true);
        }
        let entry = if let Found::Entry(entry) = found { Some(&**entry) } else { None };
        let mut full = self.end(answer, entry);
        full.set_push_limit(limit);
        if opt {
            let size = full.opt(|opt| {
                opt.set_udp_payload_size(LARGEST);
                Ok(())
            });
            debug_assert!(size.is_ok(), "the limit reserves its size");
        }
        full.finish().into_target()
    }

    /// Writes the answer records, as far as they fit.
    fn answers(
        &self,
        answer: &mut AnswerBuilder<Target>,
        question: &Message<&[u8]>,
        found: &Found<'_>,
    ) -> Result<(), PushError> {
        let parsed = question.sole_question().map_err(|_| PushError::ShortBuf)?;
        let mut owner = owned(&parsed.qname().to_string())?;
        for alias in &self.aliases {
            let target = owned(alias)?;
            answer.push((&owner, Class::IN, TTL, Cname::new(&target)))?;
            owner = target;
        }
        let Found::Entry(entry) = found else { return Ok(()) };
        self.records(answer, &owner, entry)
    }

    fn records(&self, answer: &mut AnswerBuilder<Target>, owner: &OwnedName, entry: &Entry) -> Result<(), PushError> {
        let is_apex = owner.to_string().eq_ignore_ascii_case(self.zone.domain());
        match self.kind {
            Rtype::A | Rtype::ANY => {
                for ip in self.in_turn(entry) {
                    answer.push((owner, Class::IN, TTL, A::new(ip)))?;
                }
            }
            Rtype::SRV => {
                let share = entry.services.len().max(1);
                let weight = u16::try_from(100 / share).unwrap_or(1).max(1);
                for service in &entry.services {
                    let target = owned(&service.target)?;
                    answer.push((owner, Class::IN, TTL, Srv::new(0, weight, service.port, target)))?;
                }
            }
            Rtype::PTR => {
                for name in &entry.pointers {
                    answer.push((owner, Class::IN, TTL, Ptr::new(owned(name)?)))?;
                }
            }
            Rtype::TXT => {
                for text in &entry.texts {
                    let text = Txt::<Vec<u8>>::build_from_slice(text.as_bytes()).map_err(|_| PushError::ShortBuf)?;
                    answer.push((owner, Class::IN, TTL, text))?;
                }
            }
            Rtype::CNAME => {
                if let Some(alias) = &entry.alias {
                    answer.push((owner, Class::IN, TTL, Cname::new(owned(alias)?)))?;
                }
            }
            Rtype::SOA if is_apex => answer.push((owner, Class::IN, TTL, self.authority()?))?,
            Rtype::NS if is_apex => {
                let server = owned(&format!("ns.dns.{}", self.zone.domain()))?;
                answer.push((owner, Class::IN, TTL, Ns::new(server)))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the addresses rotated by `turn`, as CoreDNS' `loadbalance` does.
    fn in_turn(&self, entry: &Entry) -> Vec<Ipv4Addr> {
        let mut all: Vec<Ipv4Addr> = entry.addresses.iter().copied().collect();
        if !all.is_empty() {
            let first = self.turn % all.len();
            all.rotate_left(first);
        }
        all
    }

    /// Adds the SOA record of negative answers (RFC 2308), or addresses of SRV targets. These are left out if they do
    /// not fit (RFC 2181).
    fn end(&self, answer: AnswerBuilder<Target>, entry: Option<&Entry>) -> AdditionalBuilder<Target> {
        let (is_empty, is_cut) = (answer.counts().ancount() == 0, answer.header().tc());
        let mut authority = answer.authority();
        if is_empty && !is_cut {
            let _ = self.add_soa(&mut authority);
        }
        let mut additional = authority.additional();
        let services = entry.into_iter().flat_map(|entry| &entry.services).filter(|_| self.kind == Rtype::SRV);
        for target in services.map(|service| &service.target) {
            let Found::Entry(target_entry) = self.zone.find(target) else { continue };
            for ip in &target_entry.addresses {
                let _ = owned(target).and_then(|target| additional.push((target, Class::IN, TTL, A::new(*ip))));
            }
        }
        additional
    }

    fn add_soa(&self, authority: &mut AuthorityBuilder<Target>) -> Result<(), PushError> {
        authority.push((owned(self.zone.domain())?, Class::IN, TTL, self.authority()?))
    }

    fn authority(&self) -> Result<Soa<OwnedName>, PushError> {
        let domain = self.zone.domain();
        let (server, person) = (owned(&format!("ns.dns.{domain}"))?, owned(&format!("hostmaster.{domain}"))?);
        let seconds = Ttl::from_secs;
        Ok(Soa::new(server, person, Serial(1), seconds(7200), seconds(1800), seconds(86400), TTL))
    }
}

/// Converts a name; an invalid one is reported as too large.
fn owned(name: &str) -> Result<OwnedName, PushError> {
    Name::vec_from_str(name).map_err(|_| PushError::ShortBuf)
}

fn builder() -> MessageBuilder<Target> {
    #[allow(clippy::expect_used, reason = "the header of a message fits into an empty vector")]
    MessageBuilder::from_target(StaticCompressor::new(Vec::new())).expect("space for a header")
}

fn limit(question: &Message<&[u8]>, transport: Transport) -> usize {
    match transport {
        Transport::Tcp => usize::from(u16::MAX),
        Transport::Udp => {
            usize::from(question.opt().map_or(SMALLEST, |opt| opt.udp_payload_size().clamp(SMALLEST, LARGEST)))
        }
    }
}

/// Builds a question with the ID of the client's question.
fn build_question(name: &str, kind: Rtype, id: u16) -> Result<Vec<u8>, PushError> {
    let mut question = builder();
    question.header_mut().set_rd(true);
    question.header_mut().set_id(id);
    let mut question = question.question();
    question.push(Question::new_in(owned(name)?, kind))?;
    Ok(question.finish().into_target())
}
