//! Checks the licences of the dependencies and the Rust version that they need. This needs cargo, but no network.

mod common;

use std::process::Command;

use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

/// Every package that is compiled here, as `cargo metadata` describes it with these arguments. Returns `None` and reports a
/// skip if there is no cargo. The error is cargo's message.
fn metadata(arguments: &[&str]) -> Result<Option<Vec<Value>>, String> {
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
    let packages = metadata["packages"].as_array().expect("a list of packages").clone();
    assert!(packages.len() > 100, "{} packages only", packages.len());
    Ok(Some(packages))
}

/// The packages of all features. If those of optional features were never fetched, reports a skip and returns those of the
/// default features.
fn packages() -> Option<Vec<Value>> {
    metadata(&["--all-features"]).unwrap_or_else(|words| {
        common::skip_without_tools(&format!(
            "packages of optional features are missing, run `cargo fetch`: {words}"
        ));
        metadata(&[]).unwrap_or_else(|words| panic!("{words}"))
    })
}

fn name(package: &Value) -> String {
    format!("{} {}", package["name"].as_str().unwrap_or("?"), package["version"].as_str().unwrap_or("?"))
}

/// The licences that `deny.toml` allows.
fn allowed() -> Vec<Licensee> {
    let list = include_str!("../../../deny.toml").split_once("allow = [").expect("the list").1;
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

/// The stated Rust version is enough for every dependency. Only a build shows that it is enough for this program too.
#[test]
fn no_dependency_needs_a_newer_rust() {
    let Some(packages) = packages() else { return };
    let number = |text: &str| -> (u32, u32) {
        let mut parts = text.split('.').map(|part| part.parse().expect("a number"));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    let ours = number(env!("CARGO_PKG_RUST_VERSION"));
    let newer =
        packages.iter().filter(|package| package["rust_version"].as_str().is_some_and(|v| number(v) > ours));
    let newer: Vec<_> =
        newer.map(|package| format!("{}: {}", name(package), package["rust_version"])).collect();
    assert!(newer.is_empty(), "they need a newer Rust than {ours:?}:\n{}", newer.join("\n"));
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
