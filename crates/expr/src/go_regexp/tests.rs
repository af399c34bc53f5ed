use super::GoRegexp;

const MAX_BYTES: usize = 1 << 20;

/// Checks which texts a pattern matches.
#[track_caller]
fn check(pattern: &str, matches: &[&str], others: &[&str]) {
    let compiled = GoRegexp::compile(pattern, MAX_BYTES).unwrap_or_else(|message| panic!("{pattern}: {message}"));
    for text in matches {
        assert!(compiled.is_match(text), "{pattern} matches {text:?}");
    }
    for text in others {
        assert!(!compiled.is_match(text), "{pattern} does not match {text:?}");
    }
}

#[track_caller]
fn check_refused(pattern: &str, message: &str) {
    assert_eq!(
        GoRegexp::compile(pattern, MAX_BYTES).map(|compiled| compiled.to_string()).unwrap_err().to_string(),
        message,
        "{pattern}"
    );
}

#[test]
fn perl_classes_are_ascii_only() {
    check(r"^\d$", &["5"], &["٣", "a"]);
    check(r"^\w$", &["a", "_", "7"], &["é", "-"]);
    check(r"^\s$", &[" ", "\t", "\n", "\u{c}"], &["\u{a0}", "\u{b}"]);
    check(r"^\D\W\S$", &["é£é"], &["1££", "£a£", "££ "]);
    check(r"^[\d\-a]+$", &["1-a"], &["٣", "b"]);
    check(r"^[^\d]$", &["٣", "a"], &["1"]);
    check(r"^[\D1]$", &["a", "1"], &["2"]);
    check(r"^a\b.\b", &["a-b"], &["ab"]);
    check(r"é\b", &[], &["é"]);
    check(r"a\Bb", &["ab"], &["a-b"]);
}

#[test]
fn character_classes_have_no_set_operators() {
    check("^[[]$", &["["], &["]"]);
    check("^[^[]+$", &["abc"], &["["]);
    check("^[a&&b]$", &["&", "a", "b"], &["c"]);
    check("^[~~]$", &["~"], &["a"]);
    check("^[a-]$", &["a", "-"], &["b"]);
    check("^[]a]$", &["]", "a"], &["b"]);
    check("^[^]a]$", &["b"], &["]", "a"]);
    check("^[a-c-e]$", &["b", "-", "e"], &["d"]);
    check(r"^[\]\x41\101é-ü]$", &["]", "A", "é", "ö"], &["b"]);
    check("^[[:alpha:][:^ascii:]]$", &["a", "é"], &["1"]);
    check("^[#-&]$", &["#", "%", "&"], &["'"]);
}

#[test]
fn non_operators_are_literals() {
    check("^a{$", &["a{"], &["a"]);
    check("^a{,5}$", &["a{,5}"], &["aaa"]);
    check("^a{02}$", &["a{02}"], &["aa"]);
    check("^{}]$", &["{}]"], &[]);
    check(r"^\<a\>$", &["<a>"], &["a"]);
    check(r"^\Qa.b*\E+$", &["a.b*", "a.b**"], &["axb*"]);
    check(r"^\Q(", &["("], &[]);
    check(r"^\101\x{42}\x43\_\-\ \/$", &["ABC_- /"], &[]);
    check("^a b#c$", &["a b#c"], &["ab"]);
    check(r"^\a\f\v$", &["\u{7}\u{c}\u{b}"], &[]);
}

#[test]
fn operators_match_as_in_go() {
    check("^(a|b)*?c{2,3}$", &["cc", "abccc"], &["c"]);
    check("^(?i)ab(?-i)c$", &["ABc"], &["ABC"]);
    check("^(?i:a)b$", &["Ab"], &["AB"]);
    check("^(?P<n>a)(?<2>b)$", &["ab"], &[]);
    check("^(?s).$", &["\n"], &[]);
    check("^.$", &["é"], &["\n", ""]);
    check("^a$", &["a"], &["a\n"]);
    check(r"\Aa\z", &["a"], &["ba"]);
    check("(|a)()(?:)", &["", "a"], &[]);
    check(r"^\p{Greek}\pL\P{L}\p{^Lu}[\p{Lu}]$", &["αb1cD"], &["abc1D"]);
    check("(?m)^b$", &["a\nb\nc"], &["ab"]);
    check("^[^a]$", &["\n"], &["a"]);
    check("", &["", "x"], &[]);
}

#[test]
fn invalid_pattern_has_gos_message() {
    for (pattern, message) in [
        ("a**", "invalid nested repetition operator: `**`"),
        ("a*??", "invalid nested repetition operator: `*??`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|+?", "missing argument to repetition operator: `+?`"),
        ("(?:*)", "missing argument to repetition operator: `*`"),
        ("x{1001}", "invalid repeat count: `{1001}`"),
        ("x{3,2}", "invalid repeat count: `{3,2}`"),
        ("x{99999999999}", "invalid repeat count: `{99999999999}`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[]", "missing closing ]: `[]`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[a--b]", "invalid character class range: `a--`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p{Nobody}", r"invalid character class range: `\p{Nobody}`"),
        (r"\p{Script=Greek}", r"invalid character class range: `\p{Script=Greek}`"),
        (r"\u0041", r"invalid escape sequence: `\u`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"\x4", r"invalid escape sequence: `\x4`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000}`"),
        (r"a\", "trailing backslash at end of expression: ``"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?R)a", "invalid or unsupported Perl syntax: `(?R`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?i", "missing closing ): `(?i`"),
        ("(?P<a b>x)", "invalid named capture: `(?P<a b>`"),
        ("(?P<a", "invalid named capture: `(?P<a`"),
    ] {
        check_refused(pattern, message);
    }
}

proptest::proptest! {
    #[test]
    fn go_regexp_never_panics(pattern in r"[\\\[\](){}?*+|^$.a-c:<>PpQExiU0-9,=é-]{0,24}", text in "[a-c0-9]{0,8}") {
        if let Ok(compiled) = GoRegexp::compile(&pattern, MAX_BYTES) {
            let _ = compiled.is_match(&text);
        }
    }
}
