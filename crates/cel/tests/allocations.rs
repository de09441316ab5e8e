//! A plain rule over the host's objects allocates nothing. This is a binary of its own because it
//! has an allocator that counts.

#![expect(
    unsafe_code,
    reason = "an allocator that counts cannot be written without it"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::cell::Cell;

use cel::value::{HostKind, HostValue, Shape};
use cel::{Environment, Limits, Program, Type, Value};

struct Counting;

thread_local! {
    /// Per thread, because the test harness allocates on its own thread meanwhile.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: All calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: The caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: The caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Scale {
    replicas: i64,
    max_replicas: i64,
    name: String,
}

struct ScaleShape;

impl Shape for ScaleShape {
    fn kind(&self, _: &(dyn Any + Send + Sync)) -> HostKind {
        HostKind::Object
    }

    fn type_of(&self, _: &(dyn Any + Send + Sync)) -> Type {
        Type::Dyn
    }

    fn len(&self, _: &(dyn Any + Send + Sync)) -> usize {
        3
    }

    fn at<'a>(&'a self, _: &'a (dyn Any + Send + Sync), _: usize) -> Option<Value<'a>> {
        None
    }

    fn key_at<'a>(&'a self, _: &'a (dyn Any + Send + Sync), _: usize) -> Option<&'a str> {
        None
    }

    fn get<'a>(&'a self, data: &'a (dyn Any + Send + Sync), key: &str) -> Option<Value<'a>> {
        let scale = data.downcast_ref::<Scale>()?;
        match key {
            "replicas" => Some(Value::Int(scale.replicas)),
            "maxReplicas" => Some(Value::Int(scale.max_replicas)),
            "name" => Some(scale.name.as_str().into()),
            _ => None,
        }
    }
}

#[test]
fn a_plain_rule_allocates_nothing() {
    let environment = Environment::for_new_expressions()
        .extend()
        .variable("self", Type::Dyn)
        .done();
    let source = "self.replicas <= self.maxReplicas && self.name.startsWith('a')";
    let checked = environment.compile(source).unwrap();
    let program = Program::new(&checked).unwrap();
    let scale = Scale {
        replicas: 1,
        max_replicas: 2,
        name: "abc".to_owned(),
    };
    let host = Value::Host(HostValue {
        data: &scale,
        shape: &ScaleShape,
    });
    let variables = [("self", host)];
    let limits = Limits {
        cost: Some(1_000_000),
        interrupted: None,
    };
    let evaluate = || {
        let outcome = program.evaluate(&variables, limits);
        assert!(matches!(outcome.value, Ok(Value::Bool(true))));
        assert_eq!(outcome.cost, 8);
    };
    // The first evaluation of a thread makes the vectors that the others reuse.
    evaluate();
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        evaluate();
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
