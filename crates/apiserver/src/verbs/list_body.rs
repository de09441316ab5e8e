//! A list as it goes out. Items are spliced bytes, written piece by piece as the client takes them,
//! or compressed pieces that all lists share; nothing is decoded unless the form demands it.

use std::sync::Arc;

use api::protobuf::ListMessage;
use api::{Reason, Resource, Status, Value};
use bytes::Bytes;
use http::Response;

use super::{go_type, partial, protobuf_kind, table, write_partial};
use crate::body::{Body, BoxError};
use crate::cache::{CachedObject, Shape, Snapshot, Text};
use crate::context::Context;
use crate::gzip::{self, Part};
use crate::negotiate::{Encoding, Form, JSON, PROTOBUF};
use crate::response::{self, COMPRESS_FROM};

/// A list is written in pieces of about this size, and a little more for the last object of one.
const PIECE: usize = 192 * 1024;
const MARGIN: usize = PIECE / 32;
const END: &[u8] = b"]}\n";

/// What a list has, and where it goes on.
pub(super) struct Page {
    pub items: Items,
    /// Whether anything but the namespace decided what is in it.
    pub is_selective: bool,
    pub revision: u64,
    pub next: Option<String>,
    pub remaining: Option<usize>,
}

impl Page {
    /// The last key in it, if more follows.
    pub fn last_key(&self) -> Option<Arc<str>> {
        self.next.as_ref()?;
        let last = self.items.iter().last();
        last.map(|entry| entry.key.clone())
    }

    /// The metadata of the list as objects of this kind: upstream always says where lists of custom
    /// resources go on.
    pub fn metadata_of(&self, resource: &Resource) -> Value {
        let mut metadata = self.metadata();
        if resource.is_custom() && self.next.is_none() {
            metadata.set(&["continue"], "");
        }
        metadata
    }

    /// The metadata of the list.
    fn metadata(&self) -> Value {
        let mut metadata = api::document!({"resourceVersion": self.revision.to_string()});
        if let Some(next) = &self.next {
            metadata.set(&["continue"], next.as_str());
        }
        if let Some(remaining) = self.remaining {
            metadata.set(&["remainingItemCount"], remaining as i64);
        }
        metadata
    }
}

/// Objects as they are stored.
pub(super) enum Items {
    Some(Vec<Arc<CachedObject>>),
    /// All of a kind or namespace, without so much as naming them one by one.
    Whole {
        snapshot: Snapshot,
        prefix: String,
        start: String,
    },
}

impl Items {
    pub fn iter(&self) -> Box<dyn Iterator<Item = &Arc<CachedObject>> + Send + '_> {
        match self {
            Items::Some(entries) => Box::new(entries.iter()),
            Items::Whole {
                snapshot,
                prefix,
                start,
            } => Box::new(snapshot.range(prefix, start)),
        }
    }

    /// Whether others will find the very same objects.
    fn are_shared(&self) -> bool {
        match self {
            Items::Some(entries) => entries.iter().all(|entry| entry.is_shared),
            Items::Whole { .. } => true,
        }
    }
}

pub(super) async fn render(
    context: &Context,
    resource: &Arc<Resource>,
    page: Page,
) -> Result<Response<Body>, Status> {
    let list = List {
        context,
        resource,
        metadata: match context.output.form {
            Form::Object => page.metadata_of(resource),
            _ => page.metadata(),
        },
    };
    match (context.output.form, context.output.encoding) {
        (Form::PartialObjectMetadata, _) => Err(Status::new(
            Reason::NotAcceptable,
            format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(resource, "List")
            ),
        )),
        (Form::PartialObjectMetadataList, Encoding::Json) if page.items.iter().next().is_none() => {
            // Made anew by upstream, which adds nothing to no list.
            let mut body = list.head();
            body.pop();
            body.extend_from_slice(b"null}\n");
            Ok(response::bytes(200, JSON, body))
        }
        (Form::Object | Form::PartialObjectMetadataList, Encoding::Json | Encoding::Protobuf) => {
            if response::accepts_gzip(context) && list.is_large(&page.items) {
                return match !page.is_selective && page.items.are_shared() {
                    true => list.shared(&page.items).await,
                    false => list.whole(&page.items),
                };
            }
            match list.can_stream() {
                true => Ok(list.streamed(page.items)),
                false => list.whole(&page.items),
            }
        }
        (form, encoding) => list.decoded(&page.items, form, encoding),
    }
}

/// A list in the making.
struct List<'a> {
    context: &'a Context,
    resource: &'a Arc<Resource>,
    metadata: Value,
}

impl List<'_> {
    fn media_type(&self) -> &'static str {
        match self.context.output.encoding {
            Encoding::Protobuf => PROTOBUF,
            _ => JSON,
        }
    }

    /// The kind and apiVersion of the answer.
    fn kind(&self) -> (String, String) {
        match self.context.output.form {
            Form::PartialObjectMetadataList => (
                "PartialObjectMetadataList".to_string(),
                "meta.k8s.io/v1".to_string(),
            ),
            _ => (
                self.resource.list_kind().into_owned(),
                self.resource.api_version(),
            ),
        }
    }

    /// What precedes the items in JSON.
    fn head(&self) -> Vec<u8> {
        let (kind, api_version) = self.kind();
        let metadata = &self.metadata;
        format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
        )
        .into_bytes()
    }

    fn message(&self) -> Result<ListMessage, Status> {
        let (kind, api_version) = self.kind();
        let definition = api::protobuf::definition_of(&api_version, &kind);
        let definition = definition.map_err(Status::internal)?;
        ListMessage::of(definition, &self.metadata).map_err(Status::internal)
    }

    /// Appends one item.
    fn write(
        &self,
        message: Option<&ListMessage>,
        out: &mut Vec<u8>,
        entry: &Arc<CachedObject>,
        is_first: bool,
    ) -> Result<(), Status> {
        let forms = &self.context.server.cache.forms;
        let entry = &forms.shown(self.resource, entry)?;
        match message {
            Some(list) => {
                let (shape, ..) = protobuf_kind(self.resource, self.context.output.form);
                let item = forms.message(self.resource, entry, shape)?;
                list.write_item(out, &item, &entry.version());
            }
            None if self.is_spliced() => {
                let form = ItemForm::of(self.resource, self.context.output.form);
                write_json(form, out, entry, is_first);
            }
            None => {
                if !is_first {
                    out.push(b',');
                }
                write_partial(self.resource, entry, out, entry.revision)?;
            }
        }
        Ok(())
    }

    /// Whether those who accept it get this compressed.
    fn is_large(&self, items: &Items) -> bool {
        let mut length = 0;
        items.iter().any(|entry| {
            length += entry.bytes.len();
            length >= COMPRESS_FROM
        })
    }

    /// Whether the JSON of an item is made of its bytes alone.
    fn is_spliced(&self) -> bool {
        self.context.output.form == Form::Object || !self.resource.strategy().hides_metadata()
    }

    /// Whether nothing can go wrong any more once it has begun.
    fn can_stream(&self) -> bool {
        self.context.output.encoding == Encoding::Json
            && self.is_spliced()
            && self.resource.is_storage_version()
            && !self.is_converted()
    }

    /// Whether single objects may be stored in another version than the others.
    fn is_converted(&self) -> bool {
        let custom = self.resource.definition.custom();
        custom.is_some_and(|custom| custom.kind.is_converted_by_webhook)
    }

    /// From compressed pieces that are made once and shared.
    async fn shared(&self, items: &Items) -> Result<Response<Body>, Status> {
        let entries: Vec<&Arc<CachedObject>> = items.iter().collect();
        let message = match self.context.output.encoding {
            Encoding::Protobuf => Some(self.message()?),
            _ => None,
        };
        let text = Text {
            shown_as: Arc::as_ptr(self.resource) as usize,
            shape: match self.context.output.form {
                Form::Object => Shape::Object,
                _ => Shape::Metadata,
            },
            is_protobuf: message.is_some(),
        };
        let write = |out: &mut Vec<u8>, entry: &Arc<CachedObject>, is_first| {
            self.write(message.as_ref(), out, entry, is_first)
        };
        let pieces = &self.context.server.cache.pieces;
        let parts = pieces.of(text, &entries, write).await?;
        let (head, end) = match &message {
            Some(message) => {
                let length = parts.iter().map(Part::plain_length).sum();
                let (kind, api_version) = self.kind();
                message.around(&api_version, &kind, length)
            }
            None => (self.head(), END.to_vec()),
        };
        let (head, end) = (Part::stored(&head), Part::stored(&end));
        let parts = [&head].into_iter().chain(&parts).chain([&end]);
        let body = Body::chunks(gzip::join(parts));
        Ok(response::compressed(200, self.media_type(), body))
    }

    /// Written as it is taken: no list is ever in memory as a whole.
    fn streamed(&self, items: Items) -> Response<Body> {
        let mut writer = Writer {
            form: ItemForm::of(self.resource, self.context.output.form),
            out: self.head(),
            place: Some(Place::Beginning),
            items,
        };
        let first = writer.next().unwrap_or_default();
        if writer.place.is_none() {
            return response::bytes(200, JSON, first);
        }
        let pieces = [first].into_iter().chain(writer).map(Ok::<_, BoxError>);
        response::bytes(200, JSON, Body::stream(futures::stream::iter(pieces)))
    }

    /// In one buffer.
    fn whole(&self, items: &Items) -> Result<Response<Body>, Status> {
        let message = match self.context.output.encoding {
            Encoding::Protobuf => Some(self.message()?),
            _ => None,
        };
        let lengths = items.iter().map(|entry| entry.bytes.len() + 32);
        let mut body = Vec::with_capacity(lengths.sum::<usize>() + 512);
        if message.is_none() {
            body = self.head();
        }
        for (index, entry) in items.iter().enumerate() {
            self.write(message.as_ref(), &mut body, entry, index == 0)?;
        }
        match message {
            None => body.extend_from_slice(END),
            Some(message) => {
                let (kind, api_version) = self.kind();
                let (head, end) = message.around(&api_version, &kind, body.len());
                body = [head, body, end].concat();
            }
        }
        Ok(response::large(self.context, 200, self.media_type(), body))
    }

    fn decoded(
        &self,
        items: &Items,
        form: Form,
        encoding: Encoding,
    ) -> Result<Response<Body>, Status> {
        let (context, resource) = (self.context, self.resource);
        let mut trees = Vec::new();
        for entry in items.iter() {
            let shown = context.server.cache.forms.shown(resource, entry)?;
            trees.push(shown.object_with_version()?);
        }
        let document = match form {
            Form::Table => table(context, resource, &trees, &self.metadata, true)?,
            _ => {
                let (kind, api_version) = self.kind();
                let items: Vec<Value> = match form {
                    Form::PartialObjectMetadataList => trees.iter().map(partial).collect(),
                    _ => trees,
                };
                let mut list = api::document!({"kind": kind, "apiVersion": api_version});
                list.set(&["metadata"], self.metadata.clone());
                list.set(&["items"], items);
                list
            }
        };
        response::encoded_for(context, 200, &document, encoding)
    }
}

/// What of an object an item of a list has.
#[derive(Clone, Copy)]
enum ItemForm {
    /// All but its apiVersion and kind, which are those of the list.
    Typed,
    /// All of it: what upstream knows no type for says its kind each time.
    Untyped,
    Metadata,
}

impl ItemForm {
    fn of(resource: &Resource, form: Form) -> ItemForm {
        match form {
            Form::Object if resource.is_custom() => ItemForm::Untyped,
            Form::Object => ItemForm::Typed,
            _ => ItemForm::Metadata,
        }
    }
}

fn write_json(form: ItemForm, out: &mut Vec<u8>, entry: &CachedObject, is_first: bool) {
    if !is_first {
        out.push(b',');
    }
    match form {
        ItemForm::Typed => entry.write_list_item(out),
        ItemForm::Untyped => entry.write(out, entry.revision),
        ItemForm::Metadata => entry.write_metadata(out, entry.revision),
    }
}

/// A list that is being written.
struct Writer {
    items: Items,
    form: ItemForm,
    /// Begun, and not yet handed over.
    out: Vec<u8>,
    /// What comes next; `None` when all is written.
    place: Option<Place>,
}

enum Place {
    Beginning,
    /// This key of a snapshot.
    Key(Arc<str>),
    /// This one of a few.
    Index(usize),
}

impl Iterator for Writer {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let place = self.place.take()?;
        let mut out = std::mem::take(&mut self.out);
        let mut is_first = matches!(place, Place::Beginning);
        let mut is_roomy = false;
        let mut put = |out: &mut Vec<u8>, entry: &CachedObject, at_most: usize| {
            if !std::mem::replace(&mut is_roomy, true) {
                // As if all were as long as the first, and only as much as can be needed.
                let all = at_most.saturating_mul(entry.bytes.len() + 64);
                out.reserve_exact(all.min(PIECE + MARGIN - END.len()) + END.len());
            }
            write_json(self.form, out, entry, is_first);
            is_first = false;
        };
        self.place = match &self.items {
            Items::Some(entries) => {
                let mut index = match place {
                    Place::Index(index) => index,
                    _ => 0,
                };
                while out.len() < PIECE
                    && let Some(entry) = entries.get(index)
                {
                    put(&mut out, entry, entries.len() - index);
                    index += 1;
                }
                (index < entries.len()).then_some(Place::Index(index))
            }
            Items::Whole {
                snapshot,
                prefix,
                start,
            } => {
                let from = match &place {
                    Place::Key(key) => key,
                    _ => start.as_str(),
                };
                let mut next = None;
                for entry in snapshot.range(prefix, from) {
                    if out.len() >= PIECE {
                        next = Some(Place::Key(entry.key.clone()));
                        break;
                    }
                    put(&mut out, entry, snapshot.len());
                }
                next
            }
        };
        if self.place.is_none() {
            out.extend_from_slice(END);
        }
        Some(out.into())
    }
}
