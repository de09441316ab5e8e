//! JSON, merge and strategic merge patches: ways to compute the new state for an update.

use api::field::{FieldError, Path};
use api::{Resource, Status, Value, conversion, schema};

use super::create::settle_namespace;
use super::preconditions::check_name;
use crate::context::Context;
use crate::decode::{self, FieldValidation};
use crate::options::PatchType;

/// A patch, read.
pub(crate) struct Patch {
    patch_type: PatchType,
    document: Value,
    /// The fields that it has twice.
    repeated: Vec<schema::FieldProblem>,
}

impl Patch {
    pub fn parse(patch_type: PatchType, body: &[u8]) -> Result<Patch, Status> {
        // Upstream leaves its words out for this one.
        let words = match patch_type {
            PatchType::Strategic => "",
            _ => "error decoding patch: ",
        };
        let wrong = |problem: &str| Status::bad_request(format!("{words}{problem}"));
        let document = schema::parse_json(body).map_err(|problem| wrong(&problem.to_string()))?;
        let found = match &document {
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        match (&document, patch_type) {
            (Value::Array(_), PatchType::Json) => {}
            (Value::Object(_), PatchType::Merge | PatchType::Strategic) => {}
            (_, PatchType::Json) => {
                return Err(wrong(&format!(
                    "json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
                )));
            }
            _ => {
                return Err(wrong(&format!(
                    "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                )));
            }
        }
        let repeated = match patch_type {
            PatchType::Merge | PatchType::Strategic => schema::repeated_fields(body),
            _ => Vec::new(),
        };
        Ok(Patch {
            patch_type,
            document,
            repeated,
        })
    }

    /// Whether the patch itself demands a resourceVersion: then a conflict is the client's to solve.
    pub fn names_version(&self) -> bool {
        let patch = &self.document;
        match self.patch_type {
            PatchType::Json => patch.as_array().into_iter().flatten().any(|operation| {
                operation.str_at(&["path"]) == "/metadata/resourceVersion"
                    && operation.str_at(&["op"]) != "remove"
            }),
            _ => !patch.str_at(&["metadata", "resourceVersion"]).is_empty(),
        }
    }

    /// A document of a definition, patched.
    pub fn apply_to(&self, old: &Value, definition: &str) -> Result<Value, Status> {
        match self.patch_type {
            PatchType::Json => api::patch::json_patch(old, &self.document),
            PatchType::Merge => Ok(api::patch::merge_patch(old, &self.document)),
            PatchType::Strategic => api::patch::strategic_merge(old, &self.document, definition),
            PatchType::Apply => Err(Status::internal("a configuration is no patch")),
        }
    }

    /// A stored object, patched in the version of `resource`.
    pub fn of_stored(
        &self,
        context: &Context,
        resource: &Resource,
        stored: &Value,
    ) -> Result<Value, Status> {
        let converted;
        let old = match resource.is_stored_as_itself() {
            true => stored,
            false => {
                converted = conversion::from_storage(resource, stored.clone());
                &converted
            }
        };
        let mut new = self.apply_to(old, resource.definition.name())?;
        self.check_patched(context, resource, &mut new, old)?;
        Ok(conversion::to_storage(resource, new))
    }

    /// A patch may break what a PUT could not: the kind, the name, the types.
    fn check_patched(
        &self,
        context: &Context,
        resource: &Resource,
        new: &mut Value,
        old: &Value,
    ) -> Result<(), Status> {
        let target = schema::Target::of(resource);
        // What upstream shows of the attempt.
        let shown = match self.patch_type {
            PatchType::Strategic => api::patch::in_go(&self.document),
            _ => String::from_utf8_lossy(&new.to_json()).into_owned(),
        };
        let wrong = |problem: String| {
            let error = FieldError::invalid(&Path::new("patch"), shown.as_str(), problem);
            Status::invalid("", "", "", vec![error.into()])
        };
        if self.patch_type == PatchType::Strategic {
            for field in ["apiVersion", "kind"] {
                new.set(&[field], old.str_at(&[field]));
            }
        }
        if let Some(custom) = resource.definition.custom() {
            let unknown = decode::custom::conform(custom, new);
            let unknown = unknown.map_err(|problem| wrong(problem.to_string()))?;
            let problems = [self.repeated.as_slice(), unknown.as_slice()].concat();
            return self.finish(context, resource, new, old, &problems, &wrong);
        }
        let (version, kind) = (new.str_at(&["apiVersion"]), new.str_at(&["kind"]));
        if kind != target.kind || version != old.str_at(&["apiVersion"]) {
            return Err(wrong(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
            )));
        }
        let conform = match self.patch_type {
            PatchType::Strategic => schema::restore,
            _ => schema::conform,
        };
        let (checked, unknown) = conform(target.definition, std::mem::take(new))
            .map_err(|problem| wrong(problem.to_string()))?;
        let problems = [self.repeated.as_slice(), unknown.as_slice()].concat();
        *new = checked;
        self.finish(context, resource, new, old, &problems, &wrong)
    }

    /// Answers unknown fields, and checks that the object is still the same one.
    fn finish(
        &self,
        context: &Context,
        resource: &Resource,
        new: &mut Value,
        old: &Value,
        problems: &[schema::FieldProblem],
        wrong: &dyn Fn(String) -> Status,
    ) -> Result<(), Status> {
        if !problems.is_empty() && FieldValidation::of(context) == FieldValidation::Strict {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(wrong(format!(
                "strict decoding error: {}",
                texts.join(", ")
            )));
        }
        decode::complain(context, &schema::Target::of(resource), problems)?;
        check_name(new, old.str_at(&["metadata", "name"]))?;
        settle_namespace(resource, &context.info.namespace, new)
    }
}
