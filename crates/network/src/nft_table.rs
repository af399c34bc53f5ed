//! nftables table as data, and the transaction between two states. Does no I/O.

use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt::Write};

/// Contents of a table by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Verdict maps by name.
    pub(crate) maps: BTreeMap<&'static str, Map>,
    /// Declarations of sets that the packet path updates.
    pub(crate) sets: BTreeMap<String, String>,
    pub(crate) chains: BTreeMap<String, Chain>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) key_type: &'static str,
    /// Verdicts by key.
    pub(crate) elements: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Hook of a base chain; `None` for a regular chain.
    pub(crate) hook: Option<&'static str>,
    pub(crate) rules: Vec<String>,
}

/// Returns the first `bytes` bytes of the text's digest, in hex.
pub(crate) fn digest(text: &str, bytes: usize) -> String {
    Sha256::digest(text).iter().take(bytes).map(|b| format!("{b:02X}")).collect()
}

impl Table {
    /// Returns the transaction for `nft -f` from `old` to this table; without `old`, the table is replaced. Unchanged
    /// sets keep their elements (session affinity).
    pub(crate) fn script(&self, name: &str, old: Option<&Self>) -> String {
        let empty = Self::default();
        let mut script = Script { table: name, text: String::new() };
        if old.is_none() {
            // "delete" fails for a missing table: it is added first.
            for verb in ["add", "delete", "add"] {
                let _ = writeln!(script.text, "{verb} table ip {name}");
            }
        }
        let old = old.unwrap_or(&empty);
        script.declare(self, old);
        script.set_contents(self, old);
        script.delete_unused(self, old);
        script.text
    }
}

struct Script<'a> {
    table: &'a str,
    text: String,
}

impl Script<'_> {
    fn line(&mut self, verb: &str, object: &str, name: &str, rest: &str) {
        let _ = writeln!(
            self.text,
            "{verb} {object} ip {} {name}{}{rest}",
            self.table,
            if rest.is_empty() { "" } else { " " }
        );
    }

    /// Adds maps, sets and chains before the rules and elements that refer to them.
    fn declare(&mut self, new: &Table, old: &Table) {
        for (name, map) in new.maps.iter().filter(|(name, _)| !old.maps.contains_key(*name)) {
            self.line("add", "map", name, &format!("{{ type {} : verdict ; }}", map.key_type));
        }
        for (name, declaration) in new.sets.iter().filter(|(name, _)| !old.sets.contains_key(*name)) {
            self.line("add", "set", name, &format!("{{ {declaration} }}"));
        }
        for (name, chain) in new.chains.iter().filter(|(name, _)| !old.chains.contains_key(*name)) {
            self.line("add", "chain", name, &chain.hook.map_or(String::new(), |hook| format!("{{ {hook} ; }}")));
        }
    }

    fn set_contents(&mut self, new: &Table, old: &Table) {
        for (name, chain) in new.chains.iter().filter(|(name, chain)| old.chains.get(*name) != Some(chain)) {
            if old.chains.contains_key(name) {
                self.line("flush", "chain", name, "");
            }
            for rule in &chain.rules {
                self.line("add", "rule", name, rule);
            }
        }
        for (name, map) in &new.maps {
            let old_elements = old.maps.get(name).map(|map| &map.elements);
            let old_verdict = |key: &str| old_elements.and_then(|old_elements| old_elements.get(key));
            // A changed element is deleted first: adding an existing key with another verdict fails.
            for (key, _) in
                old_elements.into_iter().flatten().filter(|(key, verdict)| map.elements.get(*key) != Some(verdict))
            {
                self.line("delete", "element", name, &format!("{{ {key} }}"));
            }
            for (key, verdict) in map.elements.iter().filter(|(key, verdict)| old_verdict(key) != Some(verdict)) {
                self.line("add", "element", name, &format!("{{ {key} : {verdict} }}"));
            }
        }
    }

    /// Chains are flushed before they are deleted, since they refer to each other.
    fn delete_unused(&mut self, new: &Table, old: &Table) {
        let unused: Vec<&String> = old.chains.keys().filter(|name| !new.chains.contains_key(*name)).collect();
        for verb in ["flush", "delete"] {
            for name in &unused {
                self.line(verb, "chain", name, "");
            }
        }
        for name in old.sets.keys().filter(|name| !new.sets.contains_key(*name)) {
            self.line("delete", "set", name, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// Returns a table with chains (`name: rule; rule`) and elements of the map `m`.
    fn table(chains: &[(&str, &[&str])], elements: &[(&str, &str)], sets: &[&str]) -> Table {
        let mut table = Table::default();
        for (name, rules) in chains {
            let hook = (*name == "in").then_some("type filter hook input priority 0");
            let rules = rules.iter().map(ToString::to_string).collect();
            table.chains.insert((*name).to_owned(), Chain { hook, rules });
        }
        let elements = elements.iter().map(|(key, verdict)| ((*key).to_owned(), (*verdict).to_owned())).collect();
        table.maps.insert("m", Map { key_type: "ipv4_addr", elements });
        table.sets.extend(sets.iter().map(|name| ((*name).to_owned(), "type ipv4_addr ;".to_owned())));
        table
    }

    #[track_caller]
    fn check(old: Option<&Table>, new: &Table, expected: &Expect) {
        expected.assert_eq(&new.script("t", old));
    }

    #[test]
    fn unknown_table_is_replaced() {
        let new = table(&[("in", &["ip daddr vmap @m"]), ("a", &["drop"])], &[("10.0.0.1", "goto a")], &["s"]);
        check(
            None,
            &new,
            &expect![[r"
                add table ip t
                delete table ip t
                add table ip t
                add map ip t m { type ipv4_addr : verdict ; }
                add set ip t s { type ipv4_addr ; }
                add chain ip t a
                add chain ip t in { type filter hook input priority 0 ; }
                add rule ip t a drop
                add rule ip t in ip daddr vmap @m
                add element ip t m { 10.0.0.1 : goto a }
            "]],
        );
    }

    #[test]
    fn transaction_contains_only_changes() {
        let old =
            table(&[("a", &["drop"]), ("b", &["jump a"])], &[("10.0.0.1", "goto a"), ("10.0.0.2", "goto b")], &["s"]);
        check(Some(&old), &old, &expect![""]);
        let new = table(
            &[("a", &["accept", "drop"]), ("c", &["jump a"])],
            &[("10.0.0.1", "goto a"), ("10.0.0.2", "goto c")],
            &[],
        );
        check(
            Some(&old),
            &new,
            &expect![[r"
                add chain ip t c
                flush chain ip t a
                add rule ip t a accept
                add rule ip t a drop
                add rule ip t c jump a
                delete element ip t m { 10.0.0.2 }
                add element ip t m { 10.0.0.2 : goto c }
                flush chain ip t b
                delete chain ip t b
                delete set ip t s
            "]],
        );
    }
}
