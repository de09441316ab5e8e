//! The machine that runs the operations.

use super::fold::{Accumulator, Frame};
use super::operation::{Base, Charge, Code, Initial, Operation, Path, Target};
use super::scratch::{self, Scratch};
use super::{Limits, Outcome, Variables, cost, qualify};
use crate::error::EvalError;
use crate::go_text;
use crate::value::Value;
use crate::work;

/// The host is asked whether to stop after so many iterations.
const ITERATIONS_BETWEEN_CHECKS: u64 = 100;

pub fn run<'a>(code: &Code, variables: &dyn Variables<'a>, limits: Limits<'_>) -> Outcome<'a> {
    let outer = work::begin();
    let mut scratch = scratch::take();
    scratch.frames.resize_with(code.folds.len(), Frame::default);
    let mut machine = Machine {
        code,
        variables,
        limits,
        scratch,
        cost: 0,
        iterations: 0,
        copied: 0,
    };
    let value = match machine.run() {
        Ok(()) => machine.pop(),
        Err(error) => Err(error),
    };
    let cost = machine.cost;
    scratch::give_back(machine.scratch);
    work::end(outer);
    Outcome { value, cost }
}

pub struct Machine<'r, 'a> {
    pub code: &'r Code,
    variables: &'r dyn Variables<'a>,
    limits: Limits<'r>,
    pub scratch: Scratch<'a>,
    cost: u64,
    iterations: u64,
    /// Items that additions of lists have copied.
    pub copied: usize,
}

impl<'a> Machine<'_, 'a> {
    /// Runs to the end. The error is one that nothing in the expression can absorb.
    fn run(&mut self) -> Result<(), EvalError> {
        let code = self.code;
        let mut next = 0;
        while let Some(operation) = code.operations.get(next) {
            next += 1;
            match *operation {
                Operation::Constant(constant) => {
                    self.push(code.constants[constant as usize].clone());
                }
                Operation::Variable(variable) => self.push_base(Base::Variable(variable)),
                Operation::Item(fold) => self.push_base(Base::Item(fold)),
                Operation::SecondItem(fold) => self.push_base(Base::SecondItem(fold)),
                Operation::Accumulator(fold) => match self.initial_code(fold) {
                    Some(target) => {
                        self.scratch.returns.push(next - 1);
                        next = target as usize;
                    }
                    None => self.push_base(Base::Accumulator(fold)),
                },
                Operation::Path(path) => {
                    let path = &code.paths[path as usize];
                    match path.base {
                        Base::Accumulator(fold) if self.initial_code(fold).is_some() => {
                            self.scratch.returns.push(next - 1);
                            next = self.initial_code(fold).unwrap_or_default() as usize;
                        }
                        _ => self.path(path)?,
                    }
                }
                Operation::Open(end) => {
                    if self.open() {
                        next = end as usize;
                    }
                }
                Operation::Qualify(qualifier, end) => {
                    let qualifier = &code.qualifiers[qualifier as usize];
                    if self.qualify_top(&qualifier.key, qualifier.is_optional)? {
                        next = end as usize;
                    }
                }
                Operation::Test(qualifier, end) => {
                    if self.test_top(&code.qualifiers[qualifier as usize].key)? {
                        next = end as usize;
                    }
                }
                Operation::QualifyBy { is_optional, end } => {
                    if self.qualify_by(is_optional)? {
                        next = end as usize;
                    }
                }
                Operation::Close { charge, is_test } => self.close(charge, is_test)?,
                Operation::Branch { otherwise, end } => match self.pop() {
                    Ok(Value::Bool(true)) => {}
                    Ok(Value::Bool(false)) => next = otherwise as usize,
                    other => {
                        self.push_error(other.err().unwrap_or(EvalError::NoSuchOverload));
                        self.scratch.chains.push(false);
                        next = end as usize;
                    }
                },
                Operation::Jump(target) => next = target as usize,
                Operation::AndThen(end) => {
                    if self.is_top_bool(false) {
                        next = end as usize;
                    }
                }
                Operation::OrElse(end) => {
                    if self.is_top_bool(true) {
                        next = end as usize;
                    }
                }
                Operation::And => self.logic(true),
                Operation::Or => self.logic(false),
                Operation::NotStrictlyFalse => {
                    let value = match self.pop() {
                        Ok(Value::Bool(value)) => value,
                        _ => true,
                    };
                    self.charge(1)?;
                    self.push(Value::Bool(value));
                }
                Operation::Equal => self.compare(false)?,
                Operation::NotEqual => self.compare(true)?,
                Operation::MemberOf(list) => {
                    if let (Some(top), Value::List(items)) =
                        (self.take_top(), &code.constants[list as usize])
                    {
                        let is_member = items.iter().any(|item| top.equals(item));
                        self.put_top(Value::Bool(is_member));
                    }
                }
                Operation::OptionalOr { opens, end } => match self.pop() {
                    Ok(Value::Optional(None)) => {}
                    other => {
                        match other {
                            Ok(Value::Optional(Some(value))) if opens => {
                                self.push((*value).clone())
                            }
                            other => self.push_result(other),
                        }
                        next = end as usize;
                    }
                },
                Operation::Bail { below, end } => {
                    if self.is_top_error() {
                        let result = self.pop();
                        self.drop_values(below as usize);
                        self.push_result(result);
                        next = end as usize;
                    }
                }
                Operation::Call(call) => self.call(&code.calls[call as usize])?,
                Operation::List(list) => self.list(&code.lists[list as usize]),
                Operation::Map(map) => self.map(&code.maps[map as usize]),
                Operation::Object(object) => self.object(&code.objects[object as usize]),
                Operation::FoldStart(fold, end) => {
                    if !self.start_fold(fold) {
                        next = end as usize;
                    }
                }
                Operation::FoldNext(fold, done) => {
                    let has_second = code.folds[fold as usize].has_second_variable;
                    if !self.scratch.frames[fold as usize].next(has_second) {
                        next = done as usize;
                    }
                }
                Operation::FoldCondition(done) => {
                    if let Ok(Value::Bool(false)) = self.pop() {
                        next = done as usize;
                    }
                }
                Operation::FoldStep(fold, again) => {
                    let accumulator = match self.pop() {
                        Ok(value) => Accumulator::Value(value),
                        Err(error) => Accumulator::Error(error),
                    };
                    self.scratch.frames[fold as usize].accumulator = accumulator;
                    self.check_interrupt()?;
                    next = again as usize;
                }
                Operation::FoldEnd(fold) => self.scratch.frames[fold as usize] = Frame::default(),
                Operation::Initialized(fold) => {
                    self.scratch.frames[fold as usize].accumulator = match self.pop() {
                        Ok(value) => Accumulator::Value(value),
                        Err(error) => Accumulator::Error(error),
                    };
                    next = self.scratch.returns.pop().unwrap_or(code.operations.len());
                }
                Operation::Charge(cost) => self.charge(u64::from(cost))?,
                Operation::Refuse(refusal) => {
                    self.push_error(EvalError::Message(code.refusals[refusal as usize].clone()));
                }
                Operation::End => return Ok(()),
            }
        }
        Ok(())
    }

    pub fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.wrapping_add(cost);
        match self.limits.cost {
            Some(limit) if self.cost > limit => Err(EvalError::CostExceeded),
            _ => Ok(()),
        }
    }

    pub fn push(&mut self, value: Value<'a>) {
        self.scratch.stack.push(value);
    }

    pub fn push_error(&mut self, error: EvalError) {
        self.scratch.errors.push((self.scratch.stack.len(), error));
        self.scratch.stack.push(Value::Null);
    }

    pub fn push_result(&mut self, result: Result<Value<'a>, EvalError>) {
        match result {
            Ok(value) => self.push(value),
            Err(error) => self.push_error(error),
        }
    }

    pub fn pop(&mut self) -> Result<Value<'a>, EvalError> {
        let is_error = self.is_top_error();
        let value = self.scratch.stack.pop().unwrap_or(Value::Null);
        if is_error && let Some((_, error)) = self.scratch.errors.pop() {
            return Err(error);
        }
        Ok(value)
    }

    fn is_top_error(&self) -> bool {
        self.scratch
            .errors
            .last()
            .is_some_and(|(place, _)| place + 1 == self.scratch.stack.len())
    }

    fn is_top_bool(&self, wanted: bool) -> bool {
        matches!(self.scratch.stack.last(), Some(Value::Bool(value)) if *value == wanted)
    }

    /// The value on top, unless it is an error. Null is left in its place.
    fn take_top(&mut self) -> Option<Value<'a>> {
        if self.is_top_error() {
            return None;
        }
        self.scratch.stack.last_mut().map(std::mem::take)
    }

    fn put_top(&mut self, value: Value<'a>) {
        if let Some(top) = self.scratch.stack.last_mut() {
            *top = value;
        }
    }

    fn put_top_error(&mut self, error: EvalError) {
        self.scratch.stack.pop();
        self.push_error(error);
    }

    /// Drops values, and the errors among them.
    pub fn drop_values(&mut self, count: usize) {
        let left = self.scratch.stack.len().saturating_sub(count);
        self.scratch.stack.truncate(left);
        while self
            .scratch
            .errors
            .last()
            .is_some_and(|(place, _)| *place >= left)
        {
            self.scratch.errors.pop();
        }
    }

    /// The first error from a place of the stack on; the others are dropped.
    pub fn take_error(&mut self, from: usize) -> Option<EvalError> {
        let first = self
            .scratch
            .errors
            .partition_point(|(place, _)| *place < from);
        if first == self.scratch.errors.len() {
            return None;
        }
        self.scratch.errors.truncate(first + 1);
        self.scratch.errors.pop().map(|(_, error)| error)
    }

    /// Where an accumulator is computed, if it has to be.
    fn initial_code(&self, fold: u32) -> Option<Target> {
        match (
            &self.scratch.frames[fold as usize].accumulator,
            self.code.folds[fold as usize].initial,
        ) {
            (Accumulator::Unset, Initial::Code(target)) => Some(target),
            _ => None,
        }
    }

    fn push_base(&mut self, base: Base) {
        let value = self.read(base, false);
        self.push_result(value);
    }

    fn read(&mut self, base: Base, takes: bool) -> Result<Value<'a>, EvalError> {
        match base {
            Base::Variable(variable) => {
                let name = &self.code.variables[variable as usize];
                self.variables
                    .variable(name)
                    .unwrap_or_else(|| Err(EvalError::NoSuchAttribute(name.clone())))
            }
            Base::Item(fold) => Ok(self.scratch.frames[fold as usize].item.clone()),
            Base::SecondItem(fold) => Ok(self.scratch.frames[fold as usize].second_item.clone()),
            Base::Accumulator(fold) => match &mut self.scratch.frames[fold as usize].accumulator {
                Accumulator::Value(value) if takes => Ok(std::mem::take(value)),
                Accumulator::Value(value) => Ok(value.clone()),
                Accumulator::Error(error) => Err(error.clone()),
                Accumulator::Unset => Ok(Value::Null),
            },
        }
    }

    /// A whole attribute whose qualifiers are constant.
    fn path(&mut self, path: &Path) -> Result<(), EvalError> {
        let value = self.read(path.base, path.takes);
        if path.qualifiers.is_empty() && path.charge == Charge::One {
            self.charge(1)?;
            self.push_result(value);
            return Ok(());
        }
        self.push_result(value);
        let mut is_over = self.open();
        for qualifier in &path.qualifiers {
            if is_over {
                break;
            }
            is_over = if qualifier.is_test {
                self.test_top(&qualifier.key)?
            } else {
                self.qualify_top(&qualifier.key, qualifier.is_optional)?
            };
        }
        let is_test = path
            .qualifiers
            .last()
            .is_some_and(|qualifier| qualifier.is_test);
        self.close(path.charge, is_test)
    }

    /// Begins an attribute with the value on top; true where it ends at once.
    fn open(&mut self) -> bool {
        let (is_optional, is_over) = if self.is_top_error() {
            (false, true)
        } else {
            match self.scratch.stack.last_mut() {
                Some(Value::Optional(None)) => (false, true),
                Some(top @ Value::Optional(Some(_))) => {
                    if let Value::Optional(Some(inner)) = std::mem::take(top) {
                        *top = (*inner).clone();
                    }
                    (true, false)
                }
                _ => (false, false),
            }
        };
        self.scratch.chains.push(is_optional);
        is_over
    }

    fn close(&mut self, charge: Charge, is_test: bool) -> Result<(), EvalError> {
        let is_optional = self.scratch.chains.pop().unwrap_or(false);
        if let Some(top) = self.take_top() {
            self.put_top(match top {
                value if is_optional && is_test => {
                    drop(value);
                    Value::Bool(true)
                }
                value if is_optional => Value::some(value),
                Value::Optional(value) if is_test => Value::Bool(value.is_some()),
                value => value,
            });
        }
        match charge {
            Charge::Nothing => Ok(()),
            Charge::One => self.charge(1),
            Charge::LessOne => self.charge(u64::MAX),
        }
    }

    /// Qualifies the value on top; true where the attribute ends.
    fn qualify_top(&mut self, key: &Value<'_>, is_optional: bool) -> Result<bool, EvalError> {
        let is_optional = match self.scratch.chains.last_mut() {
            Some(chain) => {
                *chain |= is_optional;
                *chain
            }
            None => is_optional,
        };
        let Some(top) = self.scratch.stack.last() else {
            return Ok(true);
        };
        match qualify::qualify(top, key, is_optional) {
            Ok(Some(value)) => {
                self.put_top(value);
                self.charge(1)?;
                Ok(false)
            }
            Ok(None) => {
                self.put_top(Value::Optional(None));
                self.end_chain();
                Ok(true)
            }
            Err(error) => {
                self.put_top_error(error);
                self.end_chain();
                if !is_optional {
                    self.charge(1)?;
                }
                Ok(true)
            }
        }
    }

    /// Whether a key is in the value on top; true where the attribute ends.
    fn test_top(&mut self, key: &Value<'_>) -> Result<bool, EvalError> {
        if self.scratch.chains.last() == Some(&true) {
            return self.qualify_top(key, true);
        }
        let Some(top) = self.scratch.stack.last() else {
            return Ok(true);
        };
        match qualify::qualify(top, key, true) {
            Ok(found) => self.put_top(Value::Bool(found.is_some())),
            Err(error) => {
                self.put_top_error(error);
                self.end_chain();
                self.charge(1)?;
                return Ok(true);
            }
        }
        self.charge(1)?;
        Ok(false)
    }

    fn qualify_by(&mut self, is_optional: bool) -> Result<bool, EvalError> {
        let key = self.pop();
        match key.and_then(|key| qualify::check_key(&key).map(|()| key)) {
            Ok(key) => self.qualify_top(&key, is_optional),
            Err(error) => {
                let is_optional = is_optional || self.scratch.chains.last() == Some(&true);
                self.put_top_error(error);
                self.end_chain();
                if !is_optional {
                    self.charge(1)?;
                }
                Ok(true)
            }
        }
    }

    /// What is on the stack is not opened again.
    fn end_chain(&mut self) {
        if let Some(chain) = self.scratch.chains.last_mut() {
            *chain = false;
        }
    }

    /// The second operand of `&&` or `||` on top of the first, of which neither ended it.
    fn logic(&mut self, is_and: bool) {
        let right = self.pop();
        let left = self.pop();
        let neutral = |operand: Result<Value<'a>, EvalError>| match operand {
            Ok(Value::Bool(value)) if value == is_and => None,
            Ok(_) => Some(EvalError::NoSuchOverload),
            Err(error) => Some(error),
        };
        if let Ok(Value::Bool(value)) = right
            && value != is_and
        {
            return self.push(Value::Bool(value));
        }
        match neutral(left).or_else(|| neutral(right)) {
            Some(error) => self.push_error(error),
            None => self.push(Value::Bool(is_and)),
        }
    }

    fn compare(&mut self, is_negated: bool) -> Result<(), EvalError> {
        let from = self.scratch.stack.len().saturating_sub(2);
        let error = self.take_error(from);
        let (Some(right), Some(left)) = (self.scratch.stack.pop(), self.scratch.stack.pop()) else {
            return Ok(());
        };
        // Of their own types libraries say that they cost one.
        let cost = match left {
            Value::Opaque(_) if !is_negated => 1,
            _ => cost::of_comparison(&left, &right),
        };
        let is_equal = left.try_equals(&right);
        work::check()?;
        match (error, is_equal) {
            (Some(error), _) => self.push_error(error),
            (None, Some(is_equal)) => self.push(Value::Bool(is_equal != is_negated)),
            (None, None) if is_negated => self.push(Value::Bool(true)),
            (None, None) => self.push_error(EvalError::NoSuchOverload),
        }
        self.charge(cost)
    }

    /// Begins a comprehension over the value on top; false where it cannot.
    fn start_fold(&mut self, fold: u32) -> bool {
        let range = match self.pop() {
            Ok(range) => range,
            Err(error) => {
                self.push_error(error);
                return false;
            }
        };
        let of = &self.code.folds[fold as usize];
        let Some(length) = range.list_len().or_else(|| range.map_len()) else {
            let kind = go_text::type_of(&range);
            self.push_error(EvalError::Message(if of.has_second_variable {
                format!("unsupported comprehension range type: {kind}")
            } else {
                format!("got '{kind}', expected iterable type")
            }));
            return false;
        };
        self.scratch.frames[fold as usize] = Frame {
            range,
            length,
            accumulator: match of.initial {
                Initial::Constant(constant) => {
                    Accumulator::Value(self.code.constants[constant as usize].clone())
                }
                Initial::Code(_) => Accumulator::Unset,
            },
            ..Frame::default()
        };
        true
    }

    fn check_interrupt(&mut self) -> Result<(), EvalError> {
        self.iterations += 1;
        match self.limits.interrupted {
            Some(interrupted)
                if self.iterations.is_multiple_of(ITERATIONS_BETWEEN_CHECKS) && interrupted() =>
            {
                Err(EvalError::Interrupted)
            }
            _ => Ok(()),
        }
    }
}
