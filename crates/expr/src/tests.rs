//! Table tests of expressions and their results.

use crate::{Budget, EvalError, Program, Type, Value, value::Key};
use std::{collections::BTreeMap, sync::Arc};

fn object() -> (Type, Value) {
    let fields = [
        ("name", Type::STRING, Value::string("web")),
        ("replicas", Type::INT, Value::Int(3)),
        ("ratio", Type::DOUBLE, Value::Double(0.5)),
        ("tags", Type::list(Type::STRING), Value::list(vec![Value::string("a"), Value::string("b")])),
        ("any", Type::Dyn, Value::Null),
        ("cpu", Type::STRING, Value::string("1500m")),
    ];
    let (mut types, mut values) = (BTreeMap::new(), BTreeMap::new());
    for (name, field_type, value) in fields {
        types.insert(name.to_owned(), field_type);
        if !matches!(value, Value::Null) {
            values.insert(Key::String(name.into()), value);
        }
    }
    types.insert("absent".to_owned(), Type::STRING);
    let map = BTreeMap::from([(Key::String("k".into()), Value::Int(1))]);
    types.insert("map".to_owned(), Type::Map(Box::new(Type::INT)));
    values.insert(Key::String("map".into()), Value::Map(Arc::new(map)));
    (Type::Object(Arc::new(types)), Value::Map(Arc::new(values)))
}

fn evaluate(source: &str) -> String {
    let (object_type, value) = object();
    let program = match Program::compile(source, &[("self", object_type)]) {
        Ok(program) => program,
        Err(error) => return error.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    match program.evaluate(&[("self", value)], &mut Budget::default()) {
        Ok(Value::Bool(b)) => b.to_string(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn expressions_evaluate_to_true() {
    for source in [
        "self.replicas == 3 && self.replicas < 4 && self.replicas % 2 == 1",
        "1 + 2 * 3 == 7 && 7 / 2 == 3 && -3 + 1 == -2 && 2.0 * 1.5 == 3.0",
        "1u + 2u == 3u && 'a' + 'b' == 'ab' && [1] + [2] == [1, 2]",
        "has(self.name) && !has(self.absent) && !has(self.any)",
        "self.tags.all(t, t.size() == 1) && self.tags.exists(t, t == 'b') && self.tags.exists_one(t, t == 'a')",
        "self.tags.map(t, t + '!') == ['a!', 'b!'] && self.tags.filter(t, t != 'a') == ['b']",
        "self.tags.map(t, t != 'a', t + t) == ['bb']",
        "'k' in self.map && self.map['k'] == 1 && self.map.all(k, self.map[k] > 0) && 'a' in self.tags",
        "self.map.all(k, v, k == 'k' && v == 1) && self.tags.exists(i, t, i == 1 && t == 'b')",
        "true || self.absent == 'x'",
        "self.absent == 'x' || true",
        "!(false && self.absent == 'x')",
        "self.name.startsWith('w') && self.name.endsWith('b') && self.name.contains('e') && self.name.matches('^[a-z]+$')",
        "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b' && 'abc'.substring(1, 2) == 'b'",
        "'abcb'.indexOf('b') == 1 && 'abcb'.lastIndexOf('b') == 3 && 'aB'.lowerAscii() == 'ab' && ' a '.trim() == 'a'",
        "'aaa'.replace('a', 'b', 2) == 'bba' && 'abc'.charAt(1) == 'b' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
        "'%s has %d of %s'.format(['x', 2, ['a', true]]) == 'x has 2 of [a, true]' && '%.2f'.format([1.234]) == '1.23'",
        "[1, 2, 3].sum() == 6 && [3, 1].min() == 1 && [3, 1].max() == 3 && [1, 2].isSorted() && [1, 2, 1].lastIndexOf(1) == 2",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [].sort() == [] && [1, 2].reverse() == [2, 1]",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(1, 1) == [] && [1, 1, 2, 1].distinct() == [1, 2]",
        "[[1], [[2]], 3].flatten() == [1, [2], 3] && [[1], [[2]]].flatten(2) == [1, 2] && lists.range(3) == [0, 1, 2]",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
        "[{'n': 'b', 'p': 1}, {'n': 'a', 'p': 2}].sortBy(e, e.n)[0].p == 2 && self.tags.sortBy(t, -t.size()) == self.tags",
        "{'a': 1}.transformMapEntry(k, v, {string(v): k}) == {'1': 'a'} && ['a', 'b'].transformMapEntry(i, v, i > 0, {v: i}) == {'b': 1}",
        "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 1], [1])",
        "quantity(self.cpu).isLessThan(quantity('2')) && quantity('1Gi').asInteger() == 1073741824 && !isQuantity('x')",
        "quantity('1').add(quantity('500m')).compareTo(quantity(self.cpu)) == 0",
        "ip('10.0.0.1').family() == 4 && isIP('::1') && !isIP('10.0.0') && ip('127.0.0.1').isLoopback()",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsCIDR('11.0.0.0/16') && isCIDR('::/0')",
        "url('https://a.example.com:8080/x?y=z').getPort() == '8080' && url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://a/?x=1&x=2').getQuery()['x'] == ['1', '2'] && !isURL('no url')",
        "url('HTTPS://a/').getScheme() == 'https' && url('HTTPS://a') == url('https://a') && isURL('registry:5000/a:v1')",
        "url('https://a/b c?k s=v%20w+x#y').getQuery() == {'k s': ['v w x']} && url('https://a/b#c').getEscapedPath() == '/b'",
        "string(1e6) == '1e+06' && string(1.5) == '1.5' && string(0.00001) == '1e-05' && string(100000.0) == '100000'",
        "!format.dns1123Label().validate('web').hasValue() && format.named('dns1123Label').value().validate('W').hasValue()",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-alpha').isLessThan(semver('1.0.0')) && !isSemver('1.2')",
        "duration('1h30m') == duration('90m') && duration('1h').getMinutes() == 60",
        "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026 && timestamp('2026-01-02T00:00:00Z') + duration('24h') > timestamp('2026-01-02T23:00:00Z')",
        "self.?absent.orValue('x') == 'x' && self.?name.hasValue() && self.?name.optMap(n, n + '!').value() == 'web!'",
        "optional.of(1).or(optional.none()).value() == 1 && self.tags[?5].orValue('none') == 'none'",
        "int('3') == 3 && string(3) == '3' && double(1) == 1.0 && type(1) == int && size('ä') == 1",
        "(self.replicas > 2 ? 'big' : 'small') == 'big'",
        "dyn(1) == 1.0 && {'a': 1}['a'] == 1",
    ] {
        assert_eq!(evaluate(source), "true", "{source}");
    }
}

#[test]
fn list_functions_return_upstreams_errors() {
    for (source, expected) in [
        ("[1].slice(0, 2) == []", "cannot slice(0, 2), list is length 1"),
        ("[1].slice(-1, 0) == []", "cannot slice(-1, 0), negative indexes not supported"),
        ("[1].slice(1, 0) == []", "cannot slice(1, 0), start index must be less than or equal to end index"),
        ("[[1]].flatten(-1) == []", "level must be non-negative"),
        ("[dyn(1), 'a'].sort() == []", "list elements must have the same type"),
        ("[[1], [2]].sort() == []", "list elements must be comparable"),
        ("['a', 'a'].transformMapEntry(i, v, {v: i}) == {}", "insert failed: key a already exists"),
        ("lists.range(100000000) == []", "operation cancelled: actual cost limit exceeded"),
    ] {
        assert_eq!(evaluate(source), expected, "{source}");
    }
}

#[test]
fn invalid_expression_has_upstreams_compile_error() {
    for (source, expected) in [
        ("self.nothing == 1", "compilation failed: ERROR: <input>: undefined field 'nothing'"),
        ("other == 1", "compilation failed: ERROR: <input>: undeclared reference to 'other' (in container '')"),
        (
            "self.replicas == 'x'",
            "compilation failed: ERROR: <input>: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (
            "self.name + null == 'a'",
            "compilation failed: ERROR: <input>: found no matching overload for '_+_' applied to '(string, null)'",
        ),
        (
            "[null].startsWith('a')",
            "compilation failed: ERROR: <input>: found no matching overload for 'startsWith' applied to 'list(null).(string)'",
        ),
        ("self.name.odd()", "compilation failed: ERROR: <input>: undeclared reference to 'odd' (in container '')"),
        (
            "self.replicas.startsWith('a')",
            "compilation failed: ERROR: <input>: found no matching overload for 'startsWith' applied to 'int.(string)'",
        ),
        (
            "self.name + 1 == 'a'",
            "compilation failed: ERROR: <input>: found no matching overload for '_+_' applied to '(string, int)'",
        ),
        (
            "self.tags.all(t, t > 1)",
            "compilation failed: ERROR: <input>: found no matching overload for '_>_' applied to '(string, int)'",
        ),
        (
            "self.name.all(c, true)",
            "compilation failed: ERROR: <input>: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("self.name &&", "compilation failed: ERROR: <input>:1:13: Syntax error: mismatched input '<EOF>'"),
    ] {
        assert!(evaluate(source).starts_with(expected), "{source}: {}", evaluate(source));
    }
}

#[test]
fn failed_evaluation_has_upstreams_error() {
    for (source, expected) in [
        ("self.absent == 'x'", "no such key: absent"),
        ("self.tags[2] == 'x'", "index out of bounds: 2"),
        ("1 / (self.replicas - 3) == 1", "division by zero"),
        ("9223372036854775807 + self.replicas > 0", "integer overflow"),
        ("uint(self.replicas - 4) == 0u", "unsigned integer overflow"),
        ("0u - uint(self.replicas) == 0u", "unsigned integer overflow"),
        ("int(1e30) == 0", "integer overflow"),
        ("timestamp(9223372036854775807) > timestamp(0)", "timestamp overflow"),
        ("duration(self.name) > duration('1s')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
        ("timestamp(self.name) > timestamp(0)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        (
            "timestamp('2026-01-02 03:04Z') > timestamp(0)",
            "type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        ("uint('+1') == 1u", "type conversion error from 'string' to 'uint'"),
        ("bool(self.name)", "type conversion error from 'string' to 'bool'"),
        (
            "url('registry/a:v1').getHost() == ''",
            "URL parse error during conversion from string: parse \"registry/a:v1\": invalid URI for request",
        ),
        ("self.tags.all(t, int(t) > 0)", "type conversion error from 'string' to 'int'"),
    ] {
        assert_eq!(evaluate(source), expected, "{source}");
    }
}

#[test]
fn time_zone_is_a_utc_offset_and_not_a_name() {
    let hours = |zone: &str| evaluate(&format!("timestamp('2026-01-02T03:04:05Z').getHours('{zone}') == 11"));
    assert_eq!((hours("+08:00").as_str(), hours("UTC").as_str()), ("true", "false"));
    assert_eq!(hours("Asia/Shanghai"), "unknown time zone Asia/Shanghai");
}

#[test]
fn expensive_or_deep_expression_ends() {
    let many = "self.tags.map(a, 1)";
    let nested =
        |n: usize| (0..n).fold("1 == 1".to_owned(), |inner, i| format!("[1,2,3,4,5,6,7,8,9,10].all(x{i}, {inner})"));
    assert_eq!(evaluate(&format!("{many}.size() == 2 && {}", nested(3))), "true");
    assert_eq!(evaluate(&nested(9)), "operation cancelled: actual cost limit exceeded");
    for deep in [
        format!("{}1{} == 1", "[".repeat(5000), "]".repeat(5000)),
        format!("1{} > 0", " + 1".repeat(9_000)),
        format!("self{}", ".a".repeat(19_000)),
        format!("self{} == 1", "[0]".repeat(9_000)),
        format!("true{}", " ? true : true".repeat(5_000)),
        "1 + 1".repeat(30_000),
    ] {
        let error = evaluate(&deep);
        assert!(error.starts_with("compilation failed"), "{} {error}", &deep[..20]);
    }
}

/// Authorizer that allows everything on Pods and returns the attributes as reason.
#[derive(Debug)]
struct PodAuthorizer;

impl crate::Authorizer for PodAuthorizer {
    fn authorize(&self, question: &crate::AuthorizationAttributes) -> crate::AuthorizationDecision {
        let crate::AuthorizationAttributes {
            account, path, verb, group, resource, subresource, namespace, name, ..
        } = question;
        let subject = account.as_ref().map_or_else(String::new, |(namespace, name)| format!("{namespace}/{name} "));
        let target = path.clone().unwrap_or_else(|| format!("{resource}.{group}/{subresource} {namespace}/{name}"));
        crate::AuthorizationDecision { allowed: resource == "pods", reason: format!("{subject}{verb} {target}") }
    }

    fn request(&self) -> crate::AuthorizationAttributes {
        crate::AuthorizationAttributes {
            resource: "pods".to_owned(),
            name: "own".to_owned(),
            ..crate::AuthorizationAttributes::default()
        }
    }
}

#[test]
fn authorizer_check_is_built_from_method_calls() {
    let check = |source: &str, expected: &str| {
        let program = Program::compile(source, &[("authorizer", Type::AUTHORIZER)]).map_err(|error| error.to_string());
        let got = program.and_then(|program| {
            let value = Value::Authorizer(Arc::new(crate::AuthorizerBuilder::new(Arc::new(PodAuthorizer))));
            program.evaluate(&[("authorizer", value)], &mut Budget::default()).map_err(|e| e.to_string())
        });
        let got = match got {
            Ok(Value::Bool(b)) => b.to_string(),
            Ok(Value::String(text)) => text.to_string(),
            other => format!("{other:?}"),
        };
        assert!(got.contains(expected), "{source}: {got}");
    };
    let pods = "authorizer.group('g').resource('pods').subresource('status').namespace('n').name('p')";
    check(&format!("{pods}.check('get').reason()"), "get pods.g/status n/p");
    check(&format!("{pods}.fieldSelector('a=b').labelSelector('c').check('get').allowed()"), "true");
    check("authorizer.group('').resource('nodes').check('get').allowed()", "false");
    check("authorizer.path('/healthz').check('get').reason()", "get /healthz");
    check("authorizer.serviceAccount('n', 'a').requestResource.check('delete').reason()", "n/a delete pods./ /own");
    check("authorizer.requestResource.check('x').errored()", "false");
    check("authorizer.serviceAccount('n', 'a/b').path('/').check('get').allowed()", "Invalid service account name");
    check(
        "authorizer.serviceAccount('n/m', 'a').path('/').check('get').allowed()",
        "Invalid service account namespace",
    );
    check("authorizer.resource('pods')", "found no matching overload for 'resource'");
    check("authorizer.group('a').check('get')", "found no matching overload for 'check'");
}

#[test]
fn mutation_types_require_the_pseudo_variable() {
    let read = |source: &str, types: &[(&str, Type)]| {
        let program = Program::compile(source, types).map_err(|error| error.to_string())?;
        let value = program.evaluate(&[], &mut Budget::default()).map_err(|error| error.to_string())?;
        let json = value.to_json().map_err(|error| error.to_string())?;
        Ok::<_, String>(format!("{} {json}", program.result()))
    };
    let known = |source: &str| {
        read(source, &[Type::MUTATION_TYPES]).map_err(|error| error.lines().next().unwrap_or("").to_owned())
    };
    assert_eq!(
        known("Object{a: Object.a{b: [1, 2u, 'x', null, 1.5]}}").as_deref(),
        Ok(r#"Object {"a":{"b":[1,2,"x",null,1.5]}}"#)
    );
    assert_eq!(known("Object{?a: optional.none(), ?b: optional.of(1)}").as_deref(), Ok(r#"Object {"b":1}"#));
    let steps = "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b~c')}]";
    assert_eq!(known(steps).as_deref(), Ok(r#"list(JSONPatch) [{"op":"add","path":"/a~1b~0c"}]"#));
    for (source, message) in [
        (
            "Object{a: Object.b{}}",
            "type mismatch: unexpected type name \"Object.b\", expected \"Object.a\", which matches field name path from root Object type",
        ),
        ("JSONPatch{nope: 1}", "undefined field 'nope'"),
        ("JSONPatch{op: 1}", "expected type of field 'op' is 'string' but provided type is 'int'"),
        ("Other{}", "undeclared reference to 'Other' (in container '')"),
    ] {
        assert_eq!(known(source), Err(format!("compilation failed: ERROR: <input>: {message}")), "{source}");
    }
    assert_eq!(known("Object{a: b'x'}"), Err("no JSON form for a value of type 'bytes'".to_owned()));
    assert!(read("Object{}", &[]).is_err(), "`Object` requires the mutation types");
}

#[test]
fn has_is_false_for_values_without_fields() {
    for source in ["!has(dyn(null).a)", "!has(dyn('x').a)", "!has(dyn(1).a)", "!has(dyn([1]).a)"] {
        assert_eq!(evaluate(source), "true", "{source}");
    }
    assert_eq!(evaluate("dyn(null).a == 1"), "no such key: a");
    assert_eq!(evaluate("dyn('x').a == 1"), "no such key: a");
}

#[test]
fn cost_is_limited_per_evaluation_and_by_the_budget() {
    let costly = Program::compile("lists.range(100000000) == []", &[]).unwrap();
    let cheap = Program::compile("1 == 1", &[]).unwrap();
    let mut budget = Budget::default();
    for _ in 0..10 {
        assert!(cheap.evaluate(&[], &mut Budget { ..budget }).is_ok());
        assert!(matches!(costly.evaluate(&[], &mut budget), Err(EvalError::CostLimitExceeded)));
    }
    assert!(matches!(costly.evaluate(&[], &mut budget), Err(EvalError::BudgetExhausted)));
    assert!(matches!(cheap.evaluate(&[], &mut budget), Err(EvalError::BudgetExhausted)));
}
