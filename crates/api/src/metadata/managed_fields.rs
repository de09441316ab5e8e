//! What is well-formed in `metadata.managedFields`. Who owns which field is `apply`'s.

use crate::document::Value;
use crate::field::{FieldError, Path};

const LONGEST_SUBRESOURCE: usize = 256;
/// The longest name of a manager.
pub const LONGEST_MANAGER: usize = 128;

/// What is wrong with the name of a manager: too long, or with characters that do not print.
pub fn validate_manager(name: &str, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.len() > LONGEST_MANAGER {
        errors.push(FieldError::too_long(path, LONGEST_MANAGER));
    }
    for (position, character) in name.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let detail = format!(
            "invalid character U+{:04X} (at position {position})",
            character as u32
        );
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

/// Go's idea of it: letters, marks, numbers, punctuation, symbols and the ASCII space.
pub fn is_printable(character: char) -> bool {
    match character {
        ' ' => true,
        '\u{ad}' | '\u{feff}' => false,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'.. => false,
        other => !other.is_control() && !other.is_whitespace(),
    }
}

/// What is wrong with the owners that an object names.
pub fn validate(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = object.list_at(&["metadata", "managedFields"]);
    let path = Path::new("metadata").child("managedFields");
    for (index, entry) in list.iter().enumerate() {
        let path = path.index(index);
        let operation = entry.str_at(&["operation"]);
        if !matches!(operation, "Apply" | "Update") {
            let detail = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(
                &path.child("operation"),
                operation,
                detail,
            ));
        }
        let fields_type = entry.str_at(&["fieldsType"]);
        if !matches!(fields_type, "" | "FieldsV1") {
            let detail = "must be `FieldsV1`";
            errors.push(FieldError::invalid(
                &path.child("fieldsType"),
                fields_type,
                detail,
            ));
        }
        let manager = entry.str_at(&["manager"]);
        errors.extend(validate_manager(manager, &path.child("manager")));
        if entry.str_at(&["subresource"]).len() > LONGEST_SUBRESOURCE {
            errors.push(FieldError::too_long(
                &path.child("subresource"),
                LONGEST_SUBRESOURCE,
            ));
        }
    }
    errors
}
