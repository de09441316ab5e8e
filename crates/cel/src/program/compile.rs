//! Turns a checked tree into operations. The work to do is on a list, not on the stack, because trees
//! can be as deep as their text is long.

use std::sync::Arc;

use super::constant::Constants;
use super::cost;
use super::operation::{
    Base, Call, CallKind, Charge, Code, Fold, Initial, List, Map, Object, Operation, Path,
    Qualifier, Target,
};
use crate::ast::{self, Comprehension, Expr, Id, Name};
use crate::checked::{CheckedAst, Reference};
use crate::error::EvalError;
use crate::patterns;
use crate::value::Value;

pub fn compile(checked: &CheckedAst, constants: Constants) -> Result<Code, EvalError> {
    let mut compiler = Compiler {
        checked,
        constants,
        code: Code::default(),
        tasks: Vec::new(),
        labels: Vec::new(),
        scope: Vec::new(),
        initials: Vec::new(),
    };
    compiler.schedule([Task::Expr(checked.ast.root), Task::Emit(Operation::End)]);
    compiler.work()?;
    while let Some(initial) = compiler.initials.pop() {
        compiler.scope = initial.scope;
        compiler.schedule([
            Task::Place(initial.label),
            Task::Expr(initial.expr),
            Task::Emit(Operation::Initialized(initial.fold)),
        ]);
        compiler.work()?;
    }
    Ok(compiler.finish())
}

pub struct Compiler<'c> {
    pub checked: &'c CheckedAst,
    pub constants: Constants,
    pub code: Code,
    tasks: Vec<Task>,
    /// Where each label is in the code.
    labels: Vec<Target>,
    /// The variables of the comprehensions around the node, innermost last.
    scope: Vec<(Name, Base)>,
    initials: Vec<PendingInitial>,
}

/// Something that remains to be done.
pub enum Task {
    /// Leaves the value of a node on the stack.
    Expr(Id),
    /// Leaves the value of a node with what was opened for its qualifiers.
    OpenAttribute(Id, Target),
    Emit(Operation),
    Place(Target),
    Bind(Name, Base),
    Unbind(usize),
    /// Lets the accumulator that was read at an operation be taken, where nothing since reads it.
    Take(usize, u32),
}

/// The first value of an accumulator that is computed when it is asked for, in the scope outside.
struct PendingInitial {
    fold: u32,
    label: Target,
    expr: Id,
    scope: Vec<(Name, Base)>,
}

impl<'c> Compiler<'c> {
    /// Puts tasks before all others, in this order.
    pub fn schedule<T>(&mut self, tasks: T)
    where
        T: IntoIterator<Item = Task, IntoIter: DoubleEndedIterator>,
    {
        self.tasks.extend(tasks.into_iter().rev());
    }

    pub fn label(&mut self) -> Target {
        self.labels.push(0);
        (self.labels.len() - 1) as Target
    }

    pub fn is_constant(&self, id: Id) -> bool {
        self.constants.get(id).is_some()
    }

    fn work(&mut self) -> Result<(), EvalError> {
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Expr(id) => self.expr(id)?,
                Task::OpenAttribute(id, end) => self.open_attribute(id, end)?,
                Task::Emit(operation) => self.code.operations.push(operation),
                Task::Place(label) => {
                    self.labels[label as usize] = self.code.operations.len() as Target;
                }
                Task::Bind(name, base) => self.scope.push((name, base)),
                Task::Unbind(count) => self.scope.truncate(self.scope.len() - count),
                Task::Take(read_at, fold) => self.take(read_at, fold),
            }
        }
        Ok(())
    }

    fn expr(&mut self, id: Id) -> Result<(), EvalError> {
        if let Some(value) = self.constants.get(id) {
            let value = value.clone();
            let constant = self.constant(value);
            self.code.operations.push(Operation::Constant(constant));
            return Ok(());
        }
        if self.is_attribute(id) {
            return self.closed_attribute(id);
        }
        let checked = self.checked;
        match checked.ast.expr(id) {
            Expr::Call(call) => self.call(id, call)?,
            Expr::List(list) => self.list(list),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct(literal) => self.object(literal),
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Unspecified | Expr::Constant(_) | Expr::Ident(_) | Expr::Select(_) => {
                return Err(EvalError::Message("unsupported expr".to_owned()));
            }
        }
        Ok(())
    }

    pub fn constant(&mut self, value: Value<'static>) -> u32 {
        self.code.constants.push(value);
        (self.code.constants.len() - 1) as u32
    }

    pub fn path(&mut self, base: Base, qualifiers: Vec<Qualifier>, charge: Charge) -> u32 {
        self.code.paths.push(Path {
            base,
            qualifiers,
            charge,
            takes: false,
        });
        (self.code.paths.len() - 1) as u32
    }

    /// What an identifier reads: a variable of a comprehension, or one of the host.
    pub fn base(&mut self, name: &Name) -> Base {
        if let Some((_, base)) = self.scope.iter().rev().find(|(known, _)| known == name) {
            return *base;
        }
        let known = self.code.variables.iter().position(|known| known == name);
        Base::Variable(known.unwrap_or_else(|| {
            self.code.variables.push(name.clone());
            self.code.variables.len() - 1
        }) as u32)
    }

    fn call(&mut self, id: Id, call: &'c ast::Call) -> Result<(), EvalError> {
        let arguments: Vec<Id> = call.target.iter().chain(&call.arguments).copied().collect();
        match (&*call.function, arguments.as_slice()) {
            ("_&&_", [left, right]) => {
                self.logic(*left, *right, Operation::AndThen, Operation::And)
            }
            ("_||_", [left, right]) => self.logic(*left, *right, Operation::OrElse, Operation::Or),
            ("@not_strictly_false", [of]) => {
                self.schedule([Task::Expr(*of), Task::Emit(Operation::NotStrictlyFalse)]);
            }
            ("_==_", [left, right]) => self.pair(*left, *right, Operation::Equal),
            ("_!=_", [left, right]) => self.pair(*left, *right, Operation::NotEqual),
            (name @ ("or" | "orValue"), [left, right]) if self.is_built_in(id) => {
                let end = self.label();
                let opens = name == "orValue";
                self.schedule([
                    Task::Expr(*left),
                    Task::Emit(Operation::OptionalOr { opens, end }),
                    Task::Expr(*right),
                    Task::Place(end),
                ]);
            }
            ("@in", [item, list]) if self.is_set(id, *list) => {
                let list = self.constants.get(*list).cloned().unwrap_or(Value::Null);
                let list = self.constant(list);
                self.schedule([Task::Expr(*item), Task::Emit(Operation::MemberOf(list))]);
            }
            _ => return self.plain_call(id, call, &arguments),
        }
        Ok(())
    }

    fn logic(&mut self, left: Id, right: Id, after_left: fn(Target) -> Operation, last: Operation) {
        let end = self.label();
        self.schedule([
            Task::Expr(left),
            Task::Emit(after_left(end)),
            Task::Expr(right),
            Task::Emit(last),
            Task::Place(end),
        ]);
    }

    fn pair(&mut self, left: Id, right: Id, operation: Operation) {
        self.schedule([Task::Expr(left), Task::Expr(right), Task::Emit(operation)]);
    }

    fn is_built_in(&self, id: Id) -> bool {
        matches!(
            self.checked.reference(id),
            Some(Reference::Function { overloads, .. })
                if matches!(
                    overloads.first().map(|overload| overload.id),
                    Some("optional_or_optional" | "optional_orValue_value")
                )
        )
    }

    /// Whether `in` looks into a constant list of simple values, which cel-go turns into a set.
    fn is_set(&self, id: Id, list: Id) -> bool {
        let is_of_list = matches!(
            self.checked.reference(id),
            Some(Reference::Function { overloads, .. })
                if matches!(overloads.as_slice(), [overload] if overload.id == "in_list")
        );
        let is_simple = |value: &Value<'_>| {
            matches!(
                value,
                Value::Bool(_)
                    | Value::Int(_)
                    | Value::Uint(_)
                    | Value::Double(_)
                    | Value::String(_)
            )
        };
        is_of_list
            && matches!(self.constants.get(list), Some(Value::List(items)) if items.iter().all(is_simple))
    }

    fn plain_call(&mut self, id: Id, call: &ast::Call, arguments: &[Id]) -> Result<(), EvalError> {
        let Some(Reference::Function {
            function,
            overloads,
        }) = self.checked.reference(id)
        else {
            let message = format!("no such overload: {}", call.function);
            self.refuse(message);
            return Ok(());
        };
        let overload = match overloads.as_slice() {
            [overload] => Some(Arc::clone(overload)),
            _ => None,
        };
        let is_pattern_constant = arguments
            .get(1)
            .is_some_and(|pattern| matches!(self.constants.get(*pattern), Some(Value::String(_))));
        let kind = match &*call.function {
            "_+_" => CallKind::Add,
            "cel.@mapInsert" => CallKind::MapInsert,
            "matches" => match arguments
                .get(1)
                .and_then(|pattern| self.constants.get(*pattern))
            {
                Some(Value::String(pattern)) => {
                    self.code.patterns.push(patterns::compile(pattern)?);
                    CallKind::Matches((self.code.patterns.len() - 1) as u32)
                }
                _ => CallKind::Plain,
            },
            "find" | "findAll" if is_pattern_constant => CallKind::Finds,
            _ => CallKind::Plain,
        };
        let ends_at_error = cost::ends_at_error(function, overload.as_deref(), arguments.len())
            || (is_pattern_constant && matches!(&*call.function, "matches" | "find" | "findAll"));
        self.code.calls.push(Call {
            cost: cost::of_overload(overload.as_ref().map_or("", |overload| overload.id)),
            asks_library: cost::is_of_library(&call.function),
            function: Arc::clone(function),
            overload,
            arguments: arguments.len() as u32,
            kind,
        });
        let operation = Operation::Call((self.code.calls.len() - 1) as u32);
        let end = self.label();
        let mut tasks = Vec::with_capacity(arguments.len() * 2 + 3);
        for (below, argument) in arguments.iter().enumerate() {
            tasks.push(Task::Expr(*argument));
            // Where the last argument fails, the call is counted.
            if ends_at_error && below + 1 < arguments.len() {
                let below = below as u32;
                tasks.push(Task::Emit(Operation::Bail { below, end }));
            }
        }
        if matches!(kind, CallKind::Add | CallKind::MapInsert)
            && let Some(first) = arguments.first()
            && let Expr::Ident(name) = self.checked.ast.expr(*first)
            && name.starts_with('@')
            && let Base::Accumulator(fold) = self.base(name)
        {
            tasks.push(Task::Take(self.code.operations.len(), fold));
        }
        tasks.push(Task::Emit(operation));
        tasks.push(Task::Place(end));
        self.schedule(tasks);
        Ok(())
    }

    /// The accumulator that an addition reads first is handed over rather than shared, so that the
    /// addition happens in place, if the rest of the addition does not read it.
    fn take(&mut self, read_at: usize, fold: u32) {
        let reads = |operation: &Operation| match operation {
            Operation::Path(path) => {
                matches!(self.code.paths[*path as usize].base, Base::Accumulator(of) if of == fold)
            }
            Operation::Accumulator(of) => *of == fold,
            _ => false,
        };
        let Some((first, rest)) = self
            .code
            .operations
            .get(read_at..)
            .and_then(<[_]>::split_first)
        else {
            return;
        };
        if reads(first)
            && !rest.iter().any(reads)
            && let Operation::Path(path) = *first
        {
            self.code.paths[path as usize].takes = true;
        }
    }

    /// Makes an expression that always fails.
    fn refuse(&mut self, message: String) {
        self.code.refusals.push(message);
        let refusal = (self.code.refusals.len() - 1) as u32;
        self.code.operations.push(Operation::Refuse(refusal));
    }

    fn list(&mut self, list: &ast::ListLiteral) {
        let end = self.label();
        let mut optional = vec![false; list.items.len()];
        for index in &list.optional {
            if let Some(place) = optional.get_mut(*index as usize) {
                *place = true;
            }
        }
        self.code.lists.push(List {
            count: list.items.len() as u32,
            optional,
        });
        let made = Operation::List((self.code.lists.len() - 1) as u32);
        self.literal(list.items.iter().copied(), made, cost::LIST, end);
    }

    fn map(&mut self, entries: &[ast::MapEntry]) {
        let end = self.label();
        self.code.maps.push(Map {
            optional: entries.iter().map(|entry| entry.is_optional).collect(),
        });
        let made = Operation::Map((self.code.maps.len() - 1) as u32);
        let parts = entries.iter().flat_map(|entry| [entry.key, entry.value]);
        self.literal(parts, made, cost::MAP, end);
    }

    fn object(&mut self, literal: &ast::StructLiteral) {
        let end = self.label();
        self.code.objects.push(Object {
            type_name: literal.type_name.clone(),
            fields: literal
                .fields
                .iter()
                .map(|field| field.name.clone())
                .collect(),
            optional: literal
                .fields
                .iter()
                .map(|field| field.is_optional)
                .collect(),
        });
        let made = Operation::Object((self.code.objects.len() - 1) as u32);
        let parts = literal.fields.iter().map(|field| field.value);
        self.literal(parts, made, cost::OBJECT, end);
    }

    /// The first error of a part is the literal's; the literal costs the same.
    fn literal(
        &mut self,
        parts: impl Iterator<Item = Id>,
        made: Operation,
        cost: u32,
        end: Target,
    ) {
        let mut tasks = Vec::new();
        for (below, part) in parts.enumerate() {
            let below = below as u32;
            tasks.push(Task::Expr(part));
            tasks.push(Task::Emit(Operation::Bail { below, end }));
        }
        tasks.push(Task::Emit(made));
        tasks.push(Task::Place(end));
        tasks.push(Task::Emit(Operation::Charge(cost)));
        self.schedule(tasks);
    }

    fn fold(&mut self, of: &'c Comprehension) {
        let fold = self.code.folds.len() as u32;
        let initial = match self.constants.get(of.initial).cloned() {
            Some(value) => Initial::Constant(self.constant(value)),
            None => {
                let label = self.label();
                self.initials.push(PendingInitial {
                    fold,
                    label,
                    expr: of.initial,
                    scope: self.scope.clone(),
                });
                Initial::Code(label)
            }
        };
        self.code.folds.push(Fold {
            has_second_variable: of.second_variable.is_some(),
            initial,
        });
        let (again, done, end) = (self.label(), self.label(), self.label());
        let accumulator = (of.accumulator.clone(), Base::Accumulator(fold));
        let mut tasks = vec![
            Task::Expr(of.range),
            Task::Emit(Operation::FoldStart(fold, end)),
            Task::Place(again),
            Task::Emit(Operation::FoldNext(fold, done)),
        ];
        let mut bound = 2;
        if let Some(second) = &of.second_variable {
            tasks.push(Task::Bind(second.clone(), Base::SecondItem(fold)));
            bound = 3;
        }
        tasks.extend([
            Task::Bind(of.variable.clone(), Base::Item(fold)),
            Task::Bind(accumulator.0.clone(), accumulator.1),
            Task::Expr(of.condition),
            Task::Emit(Operation::FoldCondition(done)),
            Task::Expr(of.step),
            Task::Emit(Operation::FoldStep(fold, again)),
            Task::Unbind(bound),
            Task::Place(done),
            Task::Bind(accumulator.0, accumulator.1),
            Task::Expr(of.result),
            Task::Unbind(1),
            Task::Emit(Operation::FoldEnd(fold)),
            Task::Place(end),
        ]);
        self.schedule(tasks);
    }

    /// Replaces labels by places.
    fn finish(mut self) -> Code {
        let labels = self.labels;
        let place = |target: &mut Target| *target = labels[*target as usize];
        for operation in &mut self.code.operations {
            match operation {
                Operation::Open(target)
                | Operation::Qualify(_, target)
                | Operation::Test(_, target)
                | Operation::QualifyBy { end: target, .. }
                | Operation::Jump(target)
                | Operation::AndThen(target)
                | Operation::OrElse(target)
                | Operation::OptionalOr { end: target, .. }
                | Operation::Bail { end: target, .. }
                | Operation::FoldStart(_, target)
                | Operation::FoldNext(_, target)
                | Operation::FoldCondition(target)
                | Operation::FoldStep(_, target) => place(target),
                Operation::Branch { otherwise, end } => {
                    place(otherwise);
                    place(end);
                }
                _ => {}
            }
        }
        for fold in &mut self.code.folds {
            if let Initial::Code(target) = &mut fold.initial {
                place(target);
            }
        }
        self.code
    }
}
