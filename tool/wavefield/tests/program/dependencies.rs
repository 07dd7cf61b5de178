//! Checks the licences of the dependencies and the Rust version that they need. This needs cargo, but no
//! network.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

/// Every package that is compiled here, and what it needs, as `cargo metadata` describes them with these
/// arguments. Returns `None` and reports a skip if there is no cargo. The error is cargo's message.
fn metadata(arguments: &[&str]) -> Result<Option<Value>, String> {
    let Ok(cargo) = std::env::var("CARGO") else {
        common::skip("not run by cargo");
        return Ok(None);
    };
    let version = Command::new("rustc").arg("-vV").output().expect("rustc comes with cargo");
    let host =
        common::stdout(&version).lines().find_map(|line| line.strip_prefix("host: ").map(str::to_owned));
    let mut command = Command::new(cargo);
    command.args(["metadata", "--offline", "--locked", "--format-version=1", "--filter-platform"]);
    command.arg(host.expect("rustc prints its host")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("cargo starts");
    if !output.status.success() {
        return Err(common::stderr(&output));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let count = list(&metadata["packages"]).len();
    assert!(count > 100, "{count} packages only");
    Ok(Some(metadata))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

/// The packages of all features. If those of optional features were never fetched, reports a skip and returns
/// those of the default features.
fn graph() -> Option<Value> {
    metadata(&["--all-features"]).unwrap_or_else(|words| {
        common::skip_without_tools(&format!(
            "packages of optional features are missing, run `cargo fetch`: {words}"
        ));
        metadata(&[]).unwrap_or_else(|words| panic!("{words}"))
    })
}

fn packages() -> Option<Vec<Value>> {
    graph().map(|graph| list(&graph["packages"]).to_vec())
}

fn name(package: &Value) -> String {
    format!("{} {}", package["name"].as_str().unwrap_or("?"), package["version"].as_str().unwrap_or("?"))
}

/// The licences that `deny.toml` allows.
fn allowed() -> Vec<Licensee> {
    let list = include_str!("../../../../deny.toml").split_once("allow = [").expect("the list").1;
    let list = list.split_once(']').expect("the list's end").0;
    list.split('"').skip(1).step_by(2).map(|name| Licensee::parse(name).expect("a licence")).collect()
}

#[test]
fn every_licence_is_allowed() {
    let Some(packages) = packages() else { return };
    let allowed = allowed();
    let refused = packages.iter().filter(|package| {
        let licence = package["license"].as_str().unwrap_or_default();
        // Older packages write `MIT/Apache-2.0`.
        let expression = Expression::parse_mode(licence, ParseMode::LAX);
        !expression.is_ok_and(|e| e.evaluate(|asked| allowed.iter().any(|licence| licence.satisfies(asked))))
    });
    let refused: Vec<_> =
        refused.map(|package| format!("{}: {}", name(package), package["license"])).collect();
    assert!(refused.is_empty(), "licences that deny.toml does not allow:\n{}", refused.join("\n"));
}

/// `scripts/wheel.sh` puts what the script prints into the wheel. It follows cargo's metadata, and `cargo tree` says whether
/// something is missing.
#[test]
fn every_crate_of_the_program_is_among_the_licences() {
    let (Ok(cargo), Ok(version)) =
        (std::env::var("CARGO"), Command::new("python3").arg("--version").output())
    else {
        return common::skip_without_tools("not run by cargo, or no python3");
    };
    let mut command = Command::new(cargo);
    command.args(["tree", "--offline", "--locked", "--edges=normal,no-proc-macro", "--prefix=none"]);
    let tree = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo starts");
    let script = Command::new("python3").arg("scripts/licences.py").current_dir(common::ROOT).output();
    let (output, tree) = (script.expect("python3 starts"), common::stdout(&tree));
    // A crate of an optional feature that nobody fetched.
    if common::stderr(&output).contains("failed to download") {
        return common::skip_without_tools("packages are missing, run `cargo fetch`");
    }
    common::assert_exit(&output, 0);
    let text = common::stdout(&output);
    let crates: Vec<_> = tree.lines().filter(|line| !line.contains("(/")).collect();
    assert!(crates.len() > 100, "{} crates; {}", crates.len(), common::stdout(&version));
    for line in crates {
        let words: Vec<_> = line.split([' ', '\n']).collect();
        let name = format!("{} {}", words[0], words[1].trim_start_matches('v'));
        assert!(
            text.lines().any(|line| line.starts_with("For ") && line.contains(&name)),
            "{name} has no text"
        );
    }
    for font in ["UBUNTU FONT LICENCE", "SIL OPEN FONT LICENSE", "BITSTREAM VERA LICENSE", "John Slegers"] {
        assert!(text.contains(font), "{font}");
    }
}

#[test]
fn the_script_of_a_release_names_every_package_that_is_published() {
    let Some(packages) = packages() else { return };
    let Ok(script) = std::fs::read_to_string(std::path::Path::new(common::ROOT).join("scripts/release.sh"))
    else {
        return common::skip("the published package has no scripts");
    };
    let list = script.lines().find_map(|line| line.strip_prefix("libraries=(")).expect("the list");
    let named: Vec<_> = list.split("-p ").skip(1).map(|rest| rest.split(' ').next()).collect();
    let published: Vec<_> = packages
        .iter()
        .filter(|package| package["source"].is_null() && package["publish"].is_null())
        .collect();
    let mut names: Vec<_> = published.iter().map(|package| package["name"].as_str()).collect();
    names.sort();
    assert_eq!(named, names);
    for name in names.into_iter().flatten() {
        let mut command = Command::new(std::env::var("CARGO").expect("as above"));
        command.args(["package", "--list", "--allow-dirty", "--offline", "-p", name]);
        let output = command.current_dir(common::ROOT).output().expect("cargo starts");
        common::assert_exit(&output, 0);
        for part in ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/lib.rs"] {
            assert!(common::stdout(&output).lines().any(|line| line == part), "{name} lacks {part}");
        }
    }
    // The address of the repository, which the list says too, stands in one place.
    let addresses: BTreeSet<_> = published.iter().map(|package| package["repository"].to_string()).collect();
    assert!(addresses.len() == 1 && !addresses.contains("null"), "{addresses:?}");
}

/// The Rust version that each package states is enough for all it needs. Only a build shows that it is enough
/// for the package too.
#[test]
fn no_dependency_needs_a_newer_rust() {
    let Some(graph) = graph() else { return };
    let number = |package: &Value| -> (u32, u32) {
        let Some(version) = package["rust_version"].as_str() else { return (0, 0) };
        let mut parts = version.split('.').map(|part| part.parse().expect("a number"));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    let packages: BTreeMap<_, _> =
        list(&graph["packages"]).iter().map(|package| (package["id"].as_str(), package)).collect();
    let needs: BTreeMap<_, _> = list(&graph["resolve"]["nodes"])
        .iter()
        .map(|node| (node["id"].as_str(), &node["dependencies"]))
        .collect();
    let (mut newer, mut checked) = (BTreeSet::new(), 0);
    for ours in packages.values().filter(|package| package["source"].is_null()) {
        let (mut known, mut open) = (BTreeSet::new(), vec![ours["id"].as_str()]);
        while let Some(id) = open.pop() {
            if !known.insert(id) {
                continue;
            }
            checked += 1;
            open.extend(list(needs[&id]).iter().map(Value::as_str));
            if number(packages[&id]) > number(ours) {
                let (needs, has) = (&packages[&id]["rust_version"], &ours["rust_version"]);
                newer.insert(format!("{} needs {needs}, {} states {has}", name(packages[&id]), name(ours)));
            }
        }
    }
    assert!(newer.is_empty() && checked > 1000, "{checked} checked: {newer:#?}");
}

/// The code that a tag or an index serves under a name can change; a commit and a hash cannot.
#[test]
fn what_workflows_and_scripts_fetch_is_pinned() {
    let root = std::path::Path::new(common::ROOT);
    let (mut actions, mut downloads) = (0, 0);
    // The published package lacks the workflows.
    let folders = ["scripts", ".github/workflows"].map(|folder| root.join(folder));
    for entry in folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten() {
        let path = entry.unwrap().path();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let place = format!("{}: {line}", path.display());
            if let Some((_, action)) = line.split_once("uses: ") {
                let commit = action.split_once('@').expect(&place).1.split(' ').next().unwrap();
                assert!(commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{place}");
                actions += 1;
            }
            let fetches =
                line.contains("pip") && [" install ", " download "].iter().any(|word| line.contains(word));
            if fetches && !line.trim_start().starts_with('#') {
                assert!(line.contains("--require-hashes") || line.contains("--no-index"), "{place}");
                downloads += 1;
            }
        }
    }
    assert!((actions == 0 || actions > 10) && downloads > 3, "{actions} actions, {downloads} downloads");
}
