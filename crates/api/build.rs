//! Takes the descriptions of the built-in kinds out of the source of `k8s-openapi`, so that
//! `kubectl explain` has words to show, and writes them compressed, a file for each package of types.
//!
//! The source is read as text. The crate's feature `schemars` gives the same words, but the largest
//! dependency would be built a second time for it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The part of the source that is about the version of Kubernetes that we serve.
const SOURCE: &str = "src/v1_36";
/// What stands between the types of a package, and between the parts of a type. No text has them.
const TYPES: &str = "\u{1e}";
const PARTS: &str = "\u{1f}";

/// By the name of a type, then by the name of a field; the type's own has the name "".
type Descriptions = BTreeMap<String, BTreeMap<String, String>>;

fn main() -> Result<(), Box<dyn Error>> {
    for path in ["build.rs", "src", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let mut descriptions = Descriptions::new();
    match k8s_openapi() {
        Ok(source) => {
            for file in files_below(&source.join(SOURCE))? {
                read_type(&fs::read_to_string(file)?, &mut descriptions);
            }
        }
        Err(error) => println!("cargo::warning=built-in kinds have no descriptions: {error}"),
    }
    let mut digest = DefaultHasher::new();
    descriptions.hash(&mut digest);
    for file in files_below(Path::new("src"))? {
        file.hash(&mut digest);
        fs::read(&file)?.hash(&mut digest);
    }
    println!("cargo::rustc-env=API_SOURCE={:016x}", digest.finish());
    write_packages(&out, &descriptions)?;
    Ok(())
}

/// The folder of the crate `k8s-openapi`, which the workspace uses.
fn k8s_openapi() -> Result<PathBuf, Box<dyn Error>> {
    let metadata = |more: &[&str]| -> Result<serde_json::Value, Box<dyn Error>> {
        let mut command = Command::new(env::var_os("CARGO").ok_or("CARGO is not set")?);
        command.args(["metadata", "--format-version=1", "--locked"]);
        command.args(["--filter-platform", &env::var("TARGET")?]);
        let output = command.args(more).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr)
                .replace('\n', " ")
                .into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    // Dependencies that this build does not need may not have been fetched.
    let metadata = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut named = packages.filter(|package| package["name"] == "k8s-openapi");
    let manifest = named.next().and_then(|one| one["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    Ok(folder.ok_or("there is no k8s-openapi")?.to_path_buf())
}

/// All files of a folder and of those below it, in order.
fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        entries.push(entry?.path());
    }
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        match entry.is_dir() {
            true => files.extend(files_below(&entry)?),
            false => files.push(entry),
        }
    }
    Ok(files)
}

/// Reads the schema of the type that a file is about. The file is generated: what a line means can be
/// seen from how far it is indented.
fn read_type(source: &str, descriptions: &mut Descriptions) {
    let Some((_, schema)) = source.split_once("impl crate::schemars::JsonSchema for ") else {
        return;
    };
    let mut lines = schema.lines();
    let name = lines.find_map(|line| between(line, "        \"", "\".into()"));
    let Some(name) = name else {
        return;
    };
    let fields = descriptions.entry(name.to_string()).or_default();
    let mut field = "";
    for line in lines {
        let of_type = between(line, "            \"description\": \"", "\",");
        let begin = "                \"";
        let begun = between(line, begin, "\": {").or_else(|| between(line, begin, "\": ({"));
        let of_field = between(line, "                    \"description\": \"", "\",");
        let beside_reference = || {
            let call = "schema_obj.ensure_object().insert(\"description\".into(), \"";
            between(line.trim_start(), call, "\".into());")
        };
        if let Some(text) = of_type {
            fields.insert(String::new(), unescaped(text));
        } else if let Some(name) = begun {
            field = name;
        } else if let Some(text) = of_field.or_else(beside_reference) {
            fields.insert(field.to_string(), unescaped(text));
        }
    }
}

fn between<'a>(line: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    line.strip_prefix(begin)?.strip_suffix(end)
}

/// What a literal of Rust stands for.
fn unescaped(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut characters = literal.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('u') => {
                let code: String = characters.by_ref().take_while(|one| *one != '}').collect();
                let code = u32::from_str_radix(code.trim_start_matches('{'), 16);
                text.extend(code.ok().and_then(char::from_u32));
            }
            other => text.extend(other),
        }
    }
    text
}

/// Writes a compressed file for each package, and an expression that lists them.
fn write_packages(out: &Path, descriptions: &Descriptions) -> Result<(), Box<dyn Error>> {
    let mut packages: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, fields) in descriptions {
        let (package, kind) = name.rsplit_once('.').unwrap_or(("", name));
        let pairs = fields.iter().flat_map(|(field, text)| [field, text]);
        let parts: Vec<&str> = std::iter::once(kind)
            .chain(pairs.map(String::as_str))
            .collect();
        packages.entry(package).or_default().push(parts.join(PARTS));
    }
    let mut list = String::from("&[\n");
    for (package, types) in packages {
        let path = out.join(format!("{package}.zlib"));
        let best = flate2::Compression::best();
        let mut encoder = flate2::write::ZlibEncoder::new(fs::File::create(path)?, best);
        encoder.write_all(types.join(TYPES).as_bytes())?;
        encoder.finish()?;
        let file = format!("concat!(env!(\"OUT_DIR\"), \"/{package}.zlib\")");
        writeln!(
            list,
            "    (\"{package}\", include_bytes!({file}) as &[u8]),"
        )?;
    }
    list.push_str("]\n");
    fs::write(out.join("descriptions.rs"), list)?;
    Ok(())
}
