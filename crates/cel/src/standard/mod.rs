//! The functions and operators of the language itself, with the names, identifiers, types and order
//! of cel-go v0.26.0. The order shows in messages and decides which overload is tried first.

pub(crate) mod arithmetic;
mod collections;
pub(crate) mod comparison;
pub(crate) mod conversion;
mod text;
mod time;

use std::sync::Arc;

use crate::ast::Name;
use crate::function::{Cost, Implementation, Overload};
use crate::types::Type;

/// The names of types that expressions may use as values, with what each is.
pub fn type_names() -> Vec<(&'static str, Type)> {
    vec![
        ("bool", Type::Bool),
        ("bytes", Type::Bytes),
        ("double", Type::Double),
        ("google.protobuf.Duration", Type::Duration),
        ("int", Type::Int),
        ("list", list_of_a()),
        ("map", map_of_a_b()),
        ("null_type", Type::Null),
        ("string", Type::String),
        ("google.protobuf.Timestamp", Type::Timestamp),
        ("type", Type::of_types()),
        ("uint", Type::Uint),
    ]
}

/// All overloads that expressions may call.
pub fn overloads() -> Vec<Overload> {
    let mut table = Table(Vec::with_capacity(160));
    table.logic();
    table.arithmetic();
    table.comparisons();
    table.collections();
    table.conversions();
    table.text();
    table.time();
    table.0
}

struct Table(Vec<Overload>);

impl Table {
    fn add(
        &mut self,
        function: &'static str,
        id: &'static str,
        arguments: &[Type],
        result: Type,
        implementation: Implementation,
    ) {
        self.0.push(Overload {
            function,
            id,
            is_member: false,
            arguments: arguments.to_vec(),
            result,
            implementation,
            cost: Cost::Fixed,
        });
    }

    fn member(
        &mut self,
        function: &'static str,
        id: &'static str,
        arguments: &[Type],
        result: Type,
        implementation: Implementation,
    ) {
        self.add(function, id, arguments, result, implementation);
        if let Some(last) = self.0.last_mut() {
            last.is_member = true;
        }
    }

    fn logic(&mut self) {
        use Implementation::BuiltIn;
        let (a, bool) = (parameter("A"), Type::Bool);
        let pair = [Type::Bool, Type::Bool];
        self.add(
            "_?_:_",
            "conditional",
            &[Type::Bool, a.clone(), a.clone()],
            a.clone(),
            BuiltIn,
        );
        self.add("_&&_", "logical_and", &pair, bool.clone(), BuiltIn);
        self.add("_||_", "logical_or", &pair, bool.clone(), BuiltIn);
        self.add(
            "!_",
            "logical_not",
            &[Type::Bool],
            bool.clone(),
            Implementation::Singleton(comparison::not),
        );
        self.add(
            "@not_strictly_false",
            "not_strictly_false",
            &[Type::Bool],
            bool.clone(),
            BuiltIn,
        );
        self.add(
            "_==_",
            "equals",
            &[a.clone(), a.clone()],
            bool.clone(),
            BuiltIn,
        );
        self.add("_!=_", "not_equals", &[a.clone(), a], bool, BuiltIn);
    }

    fn arithmetic(&mut self) {
        use Implementation::Singleton;
        use Type::{Bytes, Double, Duration, Int, String, Timestamp, Uint};
        let list = list_of_a();
        for (id, left, right, result) in [
            ("add_bytes", Bytes, Bytes, Bytes),
            ("add_double", Double, Double, Double),
            ("add_duration_duration", Duration, Duration, Duration),
            ("add_duration_timestamp", Duration, Timestamp, Timestamp),
            ("add_timestamp_duration", Timestamp, Duration, Timestamp),
            ("add_int64", Int, Int, Int),
            ("add_list", list.clone(), list.clone(), list),
            ("add_string", String, String, String),
            ("add_uint64", Uint, Uint, Uint),
        ] {
            self.add(
                "_+_",
                id,
                &[left, right],
                result,
                Singleton(arithmetic::add),
            );
        }
        for (function, compute, overloads) in [
            (
                "_/_",
                arithmetic::divide as crate::function::Compute,
                [
                    ("divide_double", Double),
                    ("divide_int64", Int),
                    ("divide_uint64", Uint),
                ]
                .as_slice(),
            ),
            (
                "_%_",
                arithmetic::modulo,
                [("modulo_int64", Int), ("modulo_uint64", Uint)].as_slice(),
            ),
            (
                "_*_",
                arithmetic::multiply,
                [
                    ("multiply_double", Double),
                    ("multiply_int64", Int),
                    ("multiply_uint64", Uint),
                ]
                .as_slice(),
            ),
        ] {
            for (id, kind) in overloads {
                let arguments = [kind.clone(), kind.clone()];
                self.add(function, id, &arguments, kind.clone(), Singleton(compute));
            }
        }
        for (id, kind) in [("negate_double", Double), ("negate_int64", Int)] {
            self.add(
                "-_",
                id,
                std::slice::from_ref(&kind),
                kind.clone(),
                Singleton(arithmetic::negate),
            );
        }
        for (id, left, right, result) in [
            ("subtract_double", Double, Double, Double),
            ("subtract_duration_duration", Duration, Duration, Duration),
            ("subtract_int64", Int, Int, Int),
            (
                "subtract_timestamp_duration",
                Timestamp,
                Duration,
                Timestamp,
            ),
            (
                "subtract_timestamp_timestamp",
                Timestamp,
                Timestamp,
                Duration,
            ),
            ("subtract_uint64", Uint, Uint, Uint),
        ] {
            self.add(
                "_-_",
                id,
                &[left, right],
                result,
                Singleton(arithmetic::subtract),
            );
        }
    }

    fn comparisons(&mut self) {
        use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
        macro_rules! ordering {
            ($function:literal, $prefix:literal, $compute:path) => {
                for (id, left, right) in [
                    (concat!($prefix, "_bool"), Bool, Bool),
                    (concat!($prefix, "_int64"), Int, Int),
                    (concat!($prefix, "_int64_double"), Int, Double),
                    (concat!($prefix, "_int64_uint64"), Int, Uint),
                    (concat!($prefix, "_uint64"), Uint, Uint),
                    (concat!($prefix, "_uint64_double"), Uint, Double),
                    (concat!($prefix, "_uint64_int64"), Uint, Int),
                    (concat!($prefix, "_double"), Double, Double),
                    (concat!($prefix, "_double_int64"), Double, Int),
                    (concat!($prefix, "_double_uint64"), Double, Uint),
                    (concat!($prefix, "_string"), String, String),
                    (concat!($prefix, "_bytes"), Bytes, Bytes),
                    (concat!($prefix, "_timestamp"), Timestamp, Timestamp),
                    (concat!($prefix, "_duration"), Duration, Duration),
                ] {
                    let implementation = Implementation::Singleton($compute);
                    self.add($function, id, &[left, right], Bool, implementation);
                }
            };
        }
        ordering!("_<_", "less", comparison::less);
        ordering!("_<=_", "less_equals", comparison::less_equals);
        ordering!("_>_", "greater", comparison::greater);
        ordering!("_>=_", "greater_equals", comparison::greater_equals);
    }

    fn collections(&mut self) {
        use Implementation::{BuiltIn, Singleton};
        let (a, b) = (parameter("A"), parameter("B"));
        let (list, map) = (list_of_a(), map_of_a_b());
        self.add(
            "_[_]",
            "index_list",
            &[list.clone(), Type::Int],
            a.clone(),
            BuiltIn,
        );
        self.add("_[_]", "index_map", &[map.clone(), a.clone()], b, BuiltIn);
        let contains = Singleton(collections::contained);
        self.add(
            "@in",
            "in_list",
            &[a.clone(), list.clone()],
            Type::Bool,
            contains,
        );
        self.add("@in", "in_map", &[a, map.clone()], Type::Bool, contains);
        for (id, member, kind) in [
            ("size_bytes", "bytes_size", Type::Bytes),
            ("size_list", "list_size", list),
            ("size_map", "map_size", map),
            ("size_string", "string_size", Type::String),
        ] {
            let size = Singleton(collections::size);
            self.add("size", id, std::slice::from_ref(&kind), Type::Int, size);
            self.member("size", member, &[kind], Type::Int, size);
        }
    }

    fn conversions(&mut self) {
        use Implementation::{Function, Singleton};
        use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
        let a = parameter("A");
        self.add(
            "type",
            "type",
            std::slice::from_ref(&a),
            Type::Type(Arc::new(a.clone())),
            Singleton(conversion::type_of),
        );
        macro_rules! conversions {
            ($function:literal, $result:expr, $compute:path, $(($id:literal, $argument:expr)),+) => {
                $(self.add($function, $id, &[$argument], $result, Function($compute));)+
            };
        }
        conversions!(
            "bool",
            Bool,
            conversion::to_bool,
            ("bool_to_bool", Bool),
            ("string_to_bool", String)
        );
        conversions!(
            "bytes",
            Bytes,
            conversion::to_bytes,
            ("bytes_to_bytes", Bytes),
            ("string_to_bytes", String)
        );
        conversions!(
            "double",
            Double,
            conversion::to_double,
            ("double_to_double", Double),
            ("int64_to_double", Int),
            ("string_to_double", String),
            ("uint64_to_double", Uint)
        );
        conversions!(
            "duration",
            Duration,
            conversion::to_duration,
            ("duration_to_duration", Duration),
            ("int64_to_duration", Int),
            ("string_to_duration", String)
        );
        self.add(
            "dyn",
            "to_dyn",
            &[a],
            Type::Dyn,
            Singleton(conversion::to_dyn),
        );
        conversions!(
            "int",
            Int,
            conversion::to_int,
            ("int64_to_int64", Int),
            ("double_to_int64", Double),
            ("duration_to_int64", Duration),
            ("string_to_int64", String),
            ("timestamp_to_int64", Timestamp),
            ("uint64_to_int64", Uint)
        );
        conversions!(
            "string",
            String,
            conversion::to_string,
            ("string_to_string", String),
            ("bool_to_string", Bool),
            ("bytes_to_string", Bytes),
            ("double_to_string", Double),
            ("duration_to_string", Duration),
            ("int64_to_string", Int),
            ("timestamp_to_string", Timestamp),
            ("uint64_to_string", Uint)
        );
        conversions!(
            "timestamp",
            Timestamp,
            conversion::to_timestamp,
            ("timestamp_to_timestamp", Timestamp),
            ("int64_to_timestamp", Int),
            ("string_to_timestamp", String)
        );
        conversions!(
            "uint",
            Uint,
            conversion::to_uint,
            ("uint64_to_uint64", Uint),
            ("double_to_uint64", Double),
            ("int64_to_uint64", Int),
            ("string_to_uint64", String)
        );
    }

    fn text(&mut self) {
        use Implementation::Singleton;
        let pair = [Type::String, Type::String];
        let matches = Singleton(text::matches);
        self.member(
            "contains",
            "contains_string",
            &pair,
            Type::Bool,
            Singleton(text::contains),
        );
        self.member(
            "endsWith",
            "ends_with_string",
            &pair,
            Type::Bool,
            Singleton(text::ends_with),
        );
        self.member(
            "startsWith",
            "starts_with_string",
            &pair,
            Type::Bool,
            Singleton(text::starts_with),
        );
        self.add("matches", "matches", &pair, Type::Bool, matches);
        self.member("matches", "matches_string", &pair, Type::Bool, matches);
    }

    fn time(&mut self) {
        use Implementation::Function;
        macro_rules! part {
            ($function:literal, $id:literal, $with_zone:literal, $compute:path) => {
                let (at, zone) = (Type::Timestamp, Type::String);
                self.member(
                    $function,
                    $id,
                    std::slice::from_ref(&at),
                    Type::Int,
                    Function($compute),
                );
                self.member(
                    $function,
                    $with_zone,
                    &[at, zone],
                    Type::Int,
                    Function($compute),
                );
            };
            ($function:literal, $id:literal, $with_zone:literal, $compute:path, $of_duration:literal) => {
                part!($function, $id, $with_zone, $compute);
                self.member(
                    $function,
                    $of_duration,
                    &[Type::Duration],
                    Type::Int,
                    Function($compute),
                );
            };
        }
        part!(
            "getFullYear",
            "timestamp_to_year",
            "timestamp_to_year_with_tz",
            time::full_year
        );
        part!(
            "getMonth",
            "timestamp_to_month",
            "timestamp_to_month_with_tz",
            time::month
        );
        part!(
            "getDayOfYear",
            "timestamp_to_day_of_year",
            "timestamp_to_day_of_year_with_tz",
            time::day_of_year
        );
        part!(
            "getDayOfMonth",
            "timestamp_to_day_of_month",
            "timestamp_to_day_of_month_with_tz",
            time::day_of_month
        );
        part!(
            "getDate",
            "timestamp_to_day_of_month_1_based",
            "timestamp_to_day_of_month_1_based_with_tz",
            time::date
        );
        part!(
            "getDayOfWeek",
            "timestamp_to_day_of_week",
            "timestamp_to_day_of_week_with_tz",
            time::day_of_week
        );
        part!(
            "getHours",
            "timestamp_to_hours",
            "timestamp_to_hours_with_tz",
            time::hours,
            "duration_to_hours"
        );
        part!(
            "getMinutes",
            "timestamp_to_minutes",
            "timestamp_to_minutes_with_tz",
            time::minutes,
            "duration_to_minutes"
        );
        part!(
            "getSeconds",
            "timestamp_to_seconds",
            "timestamp_to_seconds_tz",
            time::seconds,
            "duration_to_seconds"
        );
        part!(
            "getMilliseconds",
            "timestamp_to_milliseconds",
            "timestamp_to_milliseconds_with_tz",
            time::milliseconds,
            "duration_to_milliseconds"
        );
    }
}

fn parameter(name: &str) -> Type {
    Type::Param(Name::from(name))
}

fn list_of_a() -> Type {
    Type::List(Arc::new(parameter("A")))
}

fn map_of_a_b() -> Type {
    Type::Map(Arc::new((parameter("A"), parameter("B"))))
}
