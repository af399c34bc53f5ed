//! JSON of specifications.

use crate::Error;
use serde::Serialize;
use serde_json::Value;

/// Returns the JSON of a specification or of a part of it, with the same bytes for the same content: sets of
/// capabilities are sorted, and so are maps.
///
/// # Errors
/// When a path is not UTF-8.
pub fn encode(spec: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut tree = serde_json::to_value(spec).map_err(|e| Error::Encode(e.to_string()))?;
    for process in ["/process/capabilities", "/capabilities"] {
        for set in
            tree.pointer_mut(process).and_then(Value::as_object_mut).into_iter().flat_map(|sets| sets.values_mut())
        {
            if let Some(names) = set.as_array_mut() {
                names.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            }
        }
    }
    serde_json::to_vec_pretty(&tree).map_err(|e| Error::Encode(e.to_string()))
}
