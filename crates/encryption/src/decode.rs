//! Strict decoding. Errors of a derived serde decoder would contain values, which may be keys.

use crate::config::{ConfigError, Configuration, KeyConfiguration, ProviderConfiguration, ResourceConfiguration};
use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;
use zeroize::{Zeroize, Zeroizing};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

/// Decodes YAML or JSON.
pub(crate) fn decode(text: &str) -> Result<Configuration, ConfigError> {
    if text.is_empty() {
        return Err(ConfigError::Empty);
    }
    let document = Document::parse(text)?;
    check_type(&document.0)?;
    let mut decoder = Decoder::default();
    let configuration = decoder.configuration(&document.0);
    if decoder.errors.is_empty() {
        Ok(configuration)
    } else {
        Err(ConfigError::Decode(format!("strict decoding error: {}", decoder.errors.join(", "))))
    }
}

/// YAML document whose strings are zeroized on drop.
struct Document(Value);

impl Document {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::Error, with_snippet: false };
        let parsed = serde_saphyr::from_str_with_options::<Value>(text, options);
        // The parser's error text may contain values.
        parsed.map(Self).map_err(|error| {
            let location = error.location().map_or_else(String::new, |at| format!(" at line {}", at.line()));
            ConfigError::Decode(format!("the file is no YAML or has duplicate fields{location}"))
        })
    }
}

impl Drop for Document {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        _ => {}
    }
}

/// Checks `apiVersion` and `kind`. The errors are upstream's, without the document.
fn check_type(document: &Value) -> Result<(), ConfigError> {
    let field = |name: &str| document[name].as_str().filter(|text| !text.is_empty());
    let missing = |name: &str| ConfigError::Decode(format!("Object '{name}' is missing"));
    let kind = field("kind").ok_or_else(|| missing("Kind"))?;
    let version = field("apiVersion").ok_or_else(|| missing("apiVersion"))?;
    if (version, kind) == (API_VERSION, KIND) {
        return Ok(());
    }
    Err(ConfigError::Decode(format!(
        "no kind \"{kind}\" is registered for version \"{version}\": expected {API_VERSION}, {KIND}"
    )))
}

/// Decodes fields and collects errors with their field paths.
#[derive(Default)]
struct Decoder {
    errors: Vec<String>,
}

impl Decoder {
    fn configuration(&mut self, document: &Value) -> Configuration {
        let fields = self.object(document, "", &["apiVersion", "kind", "resources"]);
        Configuration { resources: self.list(&fields, "", "resources", Self::resource_configuration) }
    }

    fn resource_configuration(&mut self, value: &Value, path: &str) -> ResourceConfiguration {
        let fields = self.object(value, path, &["resources", "providers"]);
        ResourceConfiguration {
            resources: self.list(&fields, path, "resources", Self::text),
            providers: self.list(&fields, path, "providers", Self::provider),
        }
    }

    fn provider(&mut self, value: &Value, path: &str) -> ProviderConfiguration {
        let fields = self.object(value, path, &["kms", "aesgcm", "aescbc", "secretbox", "identity"]);
        let is_set = |name: &str| fields.get(name).is_some_and(|value| !value.is_null());
        let mut keys = |name: &str| {
            let value = fields.get(name).filter(|value| !value.is_null())?;
            let path = format!("{path}.{name}");
            let fields = self.object(value, &path, &["keys"]);
            Some(self.list(&fields, &path, "keys", Self::key))
        };
        let (aesgcm, aescbc, secretbox) = (keys("aesgcm"), keys("aescbc"), keys("secretbox"));
        if let Some(identity) = fields.get("identity") {
            self.object(identity, &format!("{path}.identity"), &[]);
        }
        ProviderConfiguration { kms: is_set("kms"), aesgcm, aescbc, secretbox, identity: is_set("identity") }
    }

    fn key(&mut self, value: &Value, path: &str) -> KeyConfiguration {
        let fields = self.object(value, path, &["name", "secret"]);
        let mut text =
            |name: &str| fields.get(name).map_or_else(String::new, |value| self.text(value, &format!("{path}.{name}")));
        KeyConfiguration { name: text("name"), secret: Zeroizing::new(text("secret")) }
    }

    fn object<'a>(&mut self, value: &'a Value, path: &str, known: &[&str]) -> Fields<'a> {
        let Some(fields) = value.as_object() else {
            if !value.is_null() {
                self.errors.push(format!("{path}: expected an object"));
            }
            return Fields(None);
        };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.errors.push(format!("unknown field \"{path}\""));
        }
        Fields(Some(fields))
    }

    fn list<T>(
        &mut self,
        fields: &Fields<'_>,
        path: &str,
        name: &str,
        mut item: impl FnMut(&mut Self, &Value, &str) -> T,
    ) -> Vec<T> {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match fields.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().enumerate().map(|(i, value)| item(self, value, &format!("{path}[{i}]"))).collect()
            }
            Some(_) => {
                self.errors.push(format!("{path}: expected a list"));
                Vec::new()
            }
        }
    }

    fn text(&mut self, value: &Value, path: &str) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            _ => {
                self.errors.push(format!("{path}: expected a string"));
                String::new()
            }
        }
    }
}

/// Returns the fields of an object; none of other values.
struct Fields<'a>(Option<&'a Map<String, Value>>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0?.get(name)
    }
}
