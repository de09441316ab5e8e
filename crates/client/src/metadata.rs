//! The metadata of an object of any kind.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// A `PartialObjectMetadata` without its `managedFields`, which are longer than everything else and
/// which no consumer reads. The consumer knows the kind.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Metadata {
    #[serde(default, deserialize_with = "without_managed_fields")]
    pub metadata: ObjectMeta,
}

fn without_managed_fields<'de, D: Deserializer<'de>>(source: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = ObjectMeta::deserialize(source)?;
    metadata.managed_fields = None;
    Ok(metadata)
}

impl kube::Resource for Metadata {
    type DynamicType = ();
    type Scope = kube::core::DynamicResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "PartialObjectMetadata".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "meta.k8s.io".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "partialobjectmetadata".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_not_kept() {
        let json = r#"{"metadata":{"name":"a","managedFields":[{"manager":"m","fieldsV1":{"f:data":{}}}]}}"#;
        let object: Metadata = serde_json::from_str(json).expect("metadata");
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
        assert!(object.metadata.managed_fields.is_none());
    }
}
