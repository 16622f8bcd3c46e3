//! The layers of the workspace: each crate uses only those below it, no stage uses another, and no module of a crate imports
//! one that imports it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest to the highest; the stages are one layer, and `bpf-build` serves build scripts.
const LAYERS: [&str; 10] = [
    "bpf-build",
    "base",
    "kernel",
    "frame",
    "lab",
    "watch",
    "program",
    "top",
    "a stage",
    "tarn",
];

/// One crate of the workspace.
struct Crate {
    name: String,
    directory: PathBuf,
    layer: usize,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn crates() -> Vec<Crate> {
    let below = |parent: &str, is_stage: bool| {
        directories(&workspace().join(parent))
            .into_iter()
            .map(move |directory| {
                let name = directory.file_name().unwrap().to_str().unwrap().to_owned();
                let layer = if is_stage { "a stage" } else { &name };
                let layer = LAYERS.iter().position(|known| *known == layer);
                let layer = layer.unwrap_or_else(|| panic!("give the crate {name} a place in LAYERS"));
                Crate { name, directory, layer }
            })
    };
    let tarn = Crate {
        name: "tarn".to_owned(),
        directory: workspace().join("tarn"),
        layer: LAYERS.len() - 1,
    };
    below("crates", false)
        .chain(below("stages", true))
        .chain([tarn])
        .collect()
}

fn directories(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// What a crate's manifest says it depends on, tests and build script included: names without `tarn-`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let names = manifest.lines().filter_map(|line| line.strip_prefix("tarn-"));
    names.filter_map(|line| line.split([' ', '.', '=']).next()).collect()
}

/// A circle of crates cargo refuses by itself, but not one of layers, nor that a stage uses another.
#[test]
fn layers_use_only_those_below_them() {
    let crates = crates();
    for Crate { name, directory, layer } in &crates {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest) {
            let used = crates.iter().find(|other| other.name == used).unwrap();
            assert!(used.layer < *layer, "{name} uses {}, which is not below it", used.name);
        }
    }
}

#[test]
fn layers_of_modules_have_no_circle() {
    for Crate { name, directory, .. } in crates() {
        let imports = imports(&directory.join("src"));
        for module in imports.keys() {
            let circle = reach(&imports, module).contains(module);
            let others: Vec<_> = reach(&imports, module)
                .into_iter()
                .filter(|other| reach(&imports, other).contains(module))
                .collect();
            assert!(!circle, "{name}: a circle of imports: {}", others.join(", "));
        }
    }
}

/// Of each module below the crate's root, those beside it that it names.
fn imports(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let files = files(source).into_iter().map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        (file.strip_prefix(source).unwrap().into(), text)
    });
    imports_of(&files.collect::<Vec<_>>())
}

/// The same of these files, by their paths below the source directory and their texts.
fn imports_of(files: &[(PathBuf, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut tests: Vec<PathBuf> = Vec::new();
    for (file, text) in files {
        let names = tests_in(text).0;
        tests.extend(names.iter().map(|name| directory_below(file).join(name)));
    }
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in files {
        let place = directory_below(file);
        if place.as_os_str().is_empty() || tests.iter().any(|test| place.starts_with(test)) {
            continue;
        }
        let parts: Vec<&str> = place.iter().map(|part| part.to_str().unwrap()).collect();
        let product = &text[..tests_in(text).1];
        let mut others = siblings(product, parts.len());
        others.retain(|name| name != parts[0]);
        imports.entry(parts[0].to_owned()).or_default().extend(others);
    }
    imports
}

/// Where the modules that a file declares have theirs: `a/b` for `a/b.rs` and `a/b/mod.rs`, and nothing for the crate's root.
fn directory_below(file: &Path) -> PathBuf {
    match file.file_stem().unwrap().to_str() {
        Some("lib" | "main" | "mod") => file.parent().unwrap().into(),
        _ => file.with_extension(""),
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The modules of a file that are there for tests alone, by `#[cfg(test)]` or another condition with `test` in it: the names of
/// those in files of their own, and where the first one begins that stands in this file, which is at its end.
fn tests_in(text: &str) -> (Vec<&str>, usize) {
    let mut names = Vec::new();
    let (mut at, mut condition) = (0, None);
    for line in text.split_inclusive('\n') {
        let is_test = line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test") && !line.contains("not(");
        if line.starts_with("#[cfg(") && is_test {
            condition = Some(at);
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            match (condition.take(), module(line)) {
                (Some(_), Some((name, ";"))) => names.push(name),
                (Some(begin), Some(_)) => return (names, begin),
                _ => {}
            }
        }
        at += line.len();
    }
    (names, text.len())
}

/// The name of the module that a line declares, and what follows it: `;` or `{`.
fn module(line: &str) -> Option<(&str, &str)> {
    let (before, module) = line.trim_end().split_once("mod ")?;
    let end = module.find([';', ' '])?;
    let (name, rest) = module.split_at(end);
    (before.is_empty() || before.starts_with("pub")).then_some((name, rest.trim()))
}

/// The modules at the crate's root that a file `depth` levels below it names by `crate::` or by `super::`, comments apart.
fn siblings(text: &str, depth: usize) -> Vec<String> {
    let up = "super::".repeat(depth);
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut names = Vec::new();
    for root in ["crate::", &up] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            let is_whole = !code[..at].ends_with("super::")
                && !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$');
            if is_whole {
                names.extend(first_names(&code[at + root.len()..]));
            }
        }
    }
    names.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()) && name != "super" && name != "self");
    names
}

/// The first part of a path, or of each path in braces: `{a::b, c}`.
fn first_names(path: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        let letters = text.trim_start().chars();
        letters.take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(list) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let mut depth = 0;
    let mut names = vec![word(list)];
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(word(&list[at + 1..])),
            _ => {}
        }
    }
    names
}

fn reach(imports: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(module) = next.pop() {
        for named in imports.get(module).into_iter().flatten() {
            if imports.contains_key(named) && reached.insert(named.clone()) {
                next.push(named);
            }
        }
    }
    reached
}

/// The test above would pass if it read nothing.
#[test]
fn layers_are_read_from_what_stands_in_a_file() {
    let text =
        "use crate::{a::b, c::{d, e}, F};\nuse super::super::g;\n// crate::h\nlet x = crate::i::j();\nuse super::k;\n";
    assert_eq!(siblings(text, 2), ["a", "c", "i", "g"]);
    assert_eq!(
        dependencies("tarn-base.workspace = true\ntarn-lab = { workspace = true }\n"),
        ["base", "lab"]
    );
    let circle = BTreeMap::from([
        ("a".to_owned(), BTreeSet::from(["b".to_owned()])),
        ("b".to_owned(), BTreeSet::from(["a".to_owned()])),
    ]);
    assert!(reach(&circle, "a").contains("a"));
}

/// What is there for tests alone may import what it likes; whether it is, says the attribute where it is declared, and not its name.
#[test]
fn layers_do_without_what_is_declared_for_tests() {
    let text = "#[cfg(test)]\nmod one;\nmod samples;\n#[cfg(any(test, feature = \"testing\"))]\npub mod two;\n#[cfg(not(test))]\nmod no;\n\
                fn f() {}\n#[cfg(test)]\nmod here {\n";
    assert_eq!(
        tests_in(text),
        (vec!["one", "two"], text.find("#[cfg(test)]\nmod here").unwrap())
    );
    let files = [
        ("lib.rs", "mod a;\n#[cfg(test)]\nmod b;\n"),
        ("a.rs", "#[cfg(test)]\nmod helpers;\nuse crate::c::x;\n"),
        ("a/helpers.rs", "use crate::d::x;\n"),
        ("a/helpers/deeper.rs", "use crate::d::x;\n"),
        ("b.rs", "use crate::d::x;\n"),
        ("c/mod.rs", "mod helpers;\n"),
        ("c/helpers.rs", "use crate::d::x;\nuse super::super::e;\n"),
    ];
    let imports = imports_of(&files.map(|(file, text)| (file.into(), text.to_owned())));
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        imports,
        BTreeMap::from([("a".to_owned(), set(&["c"])), ("c".to_owned(), set(&["d", "e"]))])
    );
}
