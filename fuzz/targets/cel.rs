//! CEL: any expression is refused, or evaluated within its cost budget.
#![no_main]

use expr::{Budget, Program, Type, Value};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static OBJECT: LazyLock<Value> = LazyLock::new(|| {
    let json = serde_json::json!({"a": 1, "b": [1, 2.5, "x", null], "c": {"d": "2026-01-02T03:04:05Z", "e": true}, "s": "abc",
        "q": "100m", "n": -9223372036854775808_i64});
    Value::from(&json)
});

fuzz_target!(|source: &str| {
    let types = [("self", Type::Dyn), ("oldSelf", Type::Dyn), ("text", Type::STRING), ("number", Type::INT)];
    let Ok(program) = Program::compile(source, &types) else { return };
    let values = [
        ("self", OBJECT.clone()),
        ("oldSelf", OBJECT.clone()),
        ("text", Value::string("abc")),
        ("number", Value::from(&serde_json::json!(7))),
    ];
    let once = program.evaluate(&values, &mut Budget::default());
    let twice = program.evaluate(&values, &mut Budget::default());
    assert_eq!(format!("{once:?}"), format!("{twice:?}"));
});
