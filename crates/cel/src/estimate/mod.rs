//! The static cost of an expression: between which numbers of units its evaluation will be, from what
//! is known of the sizes of what it reads. The numbers are cel-go's and Kubernetes', because they
//! decide which rules may be stored.
//!
//! It walks the tree by recursion; how deep a tree can be is limited by the parser.

mod calls;
mod range;
#[cfg(test)]
mod tests;

pub use self::range::Estimate;

use std::sync::Arc;

use crate::ast::{Comprehension, Constant, Expr, Id, Name};
use crate::checked::CheckedAst;
use crate::function::{SizeBounds, SizeEstimate};
use crate::types::Type;
use range::{NOTHING, UNKNOWN, exact_size, unite_sizes};

/// Of a variable or a field.
const SELECT: Estimate = Estimate::exactly(1);
const LIST: Estimate = Estimate::exactly(10);
const MAP: Estimate = Estimate::exactly(30);
const STRUCT: Estimate = Estimate::exactly(40);

/// The old name of the accumulator, which cel-go still asks for where it looks for bindings.
const OLD_ACCUMULATOR: &str = "__result__";

/// No bounds are known.
pub struct Unbounded;

impl SizeBounds for Unbounded {
    fn size(&self, _: &[Name], _: &Type) -> Option<SizeEstimate> {
        None
    }
}

/// What an expression will cost.
pub fn estimate(checked: &CheckedAst, bounds: &dyn SizeBounds) -> Estimate {
    let count = checked.ast.nodes.len();
    let mut estimator = Estimator {
        checked,
        bounds,
        paths: vec![None; count],
        sizes: vec![None; count],
        entries: vec![None; count],
        locals: Vec::new(),
        items: Name::from("@items"),
        indices: Name::from("@indices"),
        keys: Name::from("@keys"),
        values: Name::from("@values"),
    };
    estimator.cost(checked.ast.root)
}

type Path = Arc<[Name]>;

/// The sizes of the keys and values of a list or map.
#[derive(Clone, Copy)]
struct EntrySize {
    is_list: bool,
    key: SizeEstimate,
    value: SizeEstimate,
}

/// A variable of a comprehension or a binding.
struct Local {
    name: Name,
    path: Path,
    size: Option<SizeEstimate>,
    entries: Option<EntrySize>,
}

struct Estimator<'a> {
    checked: &'a CheckedAst,
    bounds: &'a dyn SizeBounds,
    /// The fields from a variable to a node, by its number.
    paths: Vec<Option<Path>>,
    sizes: Vec<Option<SizeEstimate>>,
    entries: Vec<Option<EntrySize>>,
    locals: Vec<Local>,
    items: Name,
    indices: Name,
    keys: Name,
    values: Name,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, id: Id) -> Estimate {
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Unspecified | Expr::Constant(_) => Estimate::default(),
            Expr::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => Path::from([name.clone()]),
                };
                self.set_path(id, path);
                SELECT
            }
            // A test for presence costs nothing itself.
            Expr::Select(select) if select.is_test => self.cost(select.operand),
            Expr::Select(select) => {
                let cost = self.cost(select.operand);
                let path = self.path_to(select.operand, &select.field);
                self.set_path(id, path);
                match checked.type_of(select.operand) {
                    Type::Map(_) | Type::Object(_) => cost.add(SELECT),
                    _ => cost,
                }
            }
            Expr::Call(call) => self.cost_of_call(id, call),
            Expr::List(list) => {
                let mut cost = Estimate::default();
                let mut value = NOTHING;
                for item in &list.items {
                    cost = cost.add(self.cost(*item));
                    value = unite_sizes(value, self.size_or_unknown(*item));
                }
                if list.items.is_empty() {
                    value = exact_size(0);
                }
                let entries = EntrySize {
                    is_list: true,
                    key: exact_size(1),
                    value,
                };
                self.set_entries(id, Some(entries));
                cost.add(LIST)
            }
            Expr::Map(entries) => {
                let mut cost = Estimate::default();
                let (mut key, mut value) = (NOTHING, NOTHING);
                for entry in entries {
                    cost = cost.add(self.cost(entry.key));
                    cost = cost.add(self.cost(entry.value));
                    key = unite_sizes(key, self.size_or_unknown(entry.key));
                    value = unite_sizes(value, self.size_or_unknown(entry.value));
                }
                if entries.is_empty() {
                    (key, value) = (exact_size(0), exact_size(0));
                }
                let entries = EntrySize {
                    is_list: false,
                    key,
                    value,
                };
                self.set_entries(id, Some(entries));
                cost.add(MAP)
            }
            Expr::Struct(literal) => {
                let mut cost = STRUCT;
                for field in &literal.fields {
                    cost = cost.add(self.cost(field.value));
                }
                cost
            }
            Expr::Comprehension(fold) if self.is_binding(fold) => {
                let cost = self.cost(fold.range).add(self.cost(fold.initial));
                self.push_binding(fold);
                let cost = cost.add(self.cost(fold.result));
                self.locals.pop();
                self.copy_sizes(id, fold.result);
                cost
            }
            Expr::Comprehension(fold) => self.cost_of_fold(id, fold),
        }
    }

    fn cost_of_fold(&mut self, id: Id, fold: &Comprehension) -> Estimate {
        let cost = self.cost(fold.range).add(self.cost(fold.initial));
        self.push_binding(fold);
        let entries = self.entry_size(fold.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.type_of(fold.range), Type::List(_)),
        };
        let key = entries.map(|entries| entries.key);
        let value = entries.map(|entries| entries.value);
        let mut variables = 2;
        match &fold.second_variable {
            Some(second) => {
                variables = 3;
                let (first_step, second_step) = if is_list {
                    (self.indices.clone(), self.items.clone())
                } else {
                    (self.keys.clone(), self.values.clone())
                };
                self.push_iterated(fold, &fold.variable, first_step, key);
                self.push_iterated(fold, second, second_step, value);
            }
            None if is_list => {
                self.push_iterated(fold, &fold.variable, self.items.clone(), value);
            }
            None => self.push_iterated(fold, &fold.variable, self.keys.clone(), key),
        }
        let condition = self.cost(fold.condition);
        let step = self.cost(fold.step);
        // The accumulator is known in the result, the variables are not.
        self.locals.truncate(self.locals.len() + 1 - variables);
        let cost = cost.add(self.cost(fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(fold.range);
        let times = Estimate {
            min: count.min,
            max: count.max,
        };
        let cost = cost.add(times.multiply(step.add(condition)));
        match self.checked.ast.expr(fold.initial) {
            Expr::Constant(_) => {
                let size = self.size(fold.initial);
                self.set_size(id, size);
            }
            Expr::List(_) | Expr::Map(_) => {
                self.set_size(id, Some(count));
                let entries = self.entry_size(fold.step);
                self.set_entries(id, entries);
            }
            _ => {}
        }
        cost
    }

    fn push_binding(&mut self, fold: &Comprehension) {
        let local = Local {
            name: fold.accumulator.clone(),
            path: self.path(fold.initial),
            size: self.size(fold.initial),
            entries: self.entry_size(fold.initial),
        };
        self.locals.push(local);
    }

    fn push_iterated(
        &mut self,
        fold: &Comprehension,
        name: &Name,
        step: Name,
        size: Option<SizeEstimate>,
    ) {
        let path = self.path_to(fold.range, &step);
        self.locals.push(Local {
            name: name.clone(),
            path,
            size,
            entries: None,
        });
    }

    fn is_binding(&self, fold: &Comprehension) -> bool {
        let ast = &self.checked.ast;
        matches!(ast.expr(fold.range), Expr::List(list) if list.items.is_empty())
            && matches!(
                ast.expr(fold.condition),
                Expr::Constant(Constant::Bool(false))
            )
            && &*fold.accumulator != OLD_ACCUMULATOR
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| &*local.name == name)
    }

    fn local_at(&self, id: Id) -> Option<&Local> {
        match self.checked.ast.expr(id) {
            Expr::Ident(name) => self.local(name),
            _ => None,
        }
    }

    fn path(&self, id: Id) -> Path {
        if let Some(local) = self.local_at(id) {
            return local.path.clone();
        }
        match self.paths.get(id.0 as usize) {
            Some(Some(path)) => path.clone(),
            _ => Path::from([]),
        }
    }

    fn path_to(&self, id: Id, step: &Name) -> Path {
        let path = self.path(id);
        path.iter().chain(std::iter::once(step)).cloned().collect()
    }

    fn set_path(&mut self, id: Id, path: Path) {
        if let Some(slot) = self.paths.get_mut(id.0 as usize) {
            *slot = Some(path);
        }
    }

    fn set_size(&mut self, id: Id, size: Option<SizeEstimate>) {
        if let (Some(slot), Some(_)) = (self.sizes.get_mut(id.0 as usize), size) {
            *slot = size;
        }
    }

    fn set_entries(&mut self, id: Id, entries: Option<EntrySize>) {
        if let (Some(slot), Some(_)) = (self.entries.get_mut(id.0 as usize), entries) {
            *slot = entries;
        }
    }

    fn copy_sizes(&mut self, to: Id, from: Id) {
        let size = self.size(from);
        self.set_size(to, size);
        let entries = self.entry_size(from);
        self.set_entries(to, entries);
    }

    fn size_or_unknown(&mut self, id: Id) -> SizeEstimate {
        self.size(id).unwrap_or(UNKNOWN)
    }

    /// The size of a node, from what is known of it or of its type.
    fn size(&mut self, id: Id) -> Option<SizeEstimate> {
        if let Some(Some(size)) = self.sizes.get(id.0 as usize) {
            return Some(*size);
        }
        if let Some(size) = literal_size(self.checked.ast.expr(id)) {
            return Some(exact_size(size));
        }
        let of = self.checked.type_of(id);
        if let Some(size) = self.bounds.size(&self.path(id), of) {
            self.set_size(id, Some(size));
            return Some(size);
        }
        if is_scalar(of) {
            return Some(exact_size(1));
        }
        self.local_at(id)?.size
    }

    fn entry_size(&self, id: Id) -> Option<EntrySize> {
        if let Some(Some(entries)) = self.entries.get(id.0 as usize) {
            return Some(*entries);
        }
        self.local_at(id)?.entries
    }
}

fn literal_size(expr: &Expr) -> Option<u64> {
    Some(match expr {
        Expr::Constant(Constant::String(text)) => text.chars().count() as u64,
        Expr::Constant(Constant::Bytes(bytes)) => bytes.len() as u64,
        Expr::Constant(_) => 1,
        Expr::List(list) => list.items.len() as u64,
        Expr::Map(entries) => entries.len() as u64,
        _ => return None,
    })
}

/// Whether all values of a type have the same size.
fn is_scalar(of: &Type) -> bool {
    match of {
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp => {
            true
        }
        other => other.in_optional().is_some_and(is_scalar),
    }
}
