//! Messages: every wrong option is wrong usage, and every error says what to do about it.

use std::process::{Command, Stdio};

use wavefield_handoff::Handoff;

use crate::common::{self, assert_exit, run, stderr, stdout, wavefield};
use crate::stand_in::{self, ALL, StandIn};

const SMALL: [&str; 5] = ["--headless", "--frames=2", "--grid=16x16", "--size=64x48", "--validation=off"];

/// Asserts that these arguments are wrong usage, and that the message contains `words`.
fn assert_usage(arguments: &[&str], words: &str) {
    let output = run(arguments);
    let text = stderr(&output);
    assert!(
        output.status.code() == Some(2) && text.contains(words),
        "{arguments:?}, `{words}`: {}: {text}",
        output.status
    );
}

/// Every command that has options.
const COMMANDS: [&[&str]; 7] =
    [&[], &["run"], &["serve"], &["verify"], &["devices"], &["bench"], &["bench", "latency"]];

/// The options of a command that take a value, and the names of the values, from the program's help.
fn options(command: &[&str]) -> Vec<(String, String)> {
    let help = stdout(&run(&[command, &["--help"]].concat()));
    let found: Vec<_> = help
        .lines()
        .filter_map(|line| {
            let (option, value) = line.trim_start().strip_prefix("--")?.split_once(" <")?;
            Some((format!("--{option}"), value.trim_end_matches('>').to_owned()))
        })
        .collect();
    assert!(found.len() >= 2, "{command:?}: {help}");
    found
}

/// Gives every option a value that makes no sense. `--help` at the end stops the program if it accepts the
/// value.
#[test]
fn every_option_refuses_nonsense_in_words() {
    let mut cases = Vec::new();
    for command in COMMANDS {
        for (option, value) in options(command) {
            cases.extend(
                ["", "-1", "-1x5", "x", "99999999999999999999999"]
                    .map(|nonsense| (command, option.clone(), value.clone(), nonsense)),
            );
        }
    }
    assert!(cases.len() > 300, "{} cases", cases.len());
    let problems = stand_in::each(&cases, |(command, option, value, nonsense)| {
        let mut arguments = command.to_vec();
        arguments.extend([option.as_str(), nonsense]);
        // `--compare` takes two files.
        arguments.extend((option == "--compare").then_some(*nonsense));
        arguments.push("--help");
        let output = run(&arguments);
        let text = stderr(&output);
        let raw = ["invalid digit", "number too large", "invalid float", "cannot parse", "panicked"];
        let numeric = [
            "N",
            "FD",
            "MS",
            "HZ",
            "SECONDS",
            "FACTOR",
            "WxH",
            "COLSxROWS",
            "COLSxROWS,…",
            "1..=32",
            "1..=RING",
            "K,…",
            "B,…",
        ];
        let numeric = numeric.contains(&value.as_str());
        let code = output.status.code();
        let refused = nonsense.is_empty() || (numeric && matches!(*nonsense, "x" | "-1x5"));
        let fine = (code == Some(2) || (code == Some(0) && !refused))
            && !raw.iter().any(|raw| text.contains(raw))
            && (!numeric || !text.contains("unexpected argument '-"));
        if fine { Ok(()) } else { Err(format!("{arguments:?}: {}: {text}", output.status)) }
    });
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), cases.len(), problems.join("\n"));
}

/// An option that has no effect beside another one is a mistake of the user.
#[test]
fn options_that_contradict_or_are_ignored_are_wrong_usage() {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/flat.ptx");
    for command in [&[][..], &["run"], &["verify"], &["serve"]] {
        let with = |more: &[&'static str]| -> Vec<&str> { [command, &["--frames=1"], more].concat() };
        for producer in ["--producer=compute", "--producer=host"] {
            assert_usage(&with(&[producer, "--batch=2"]), "--batch is for the CUDA producer");
            assert_usage(&with(&[producer, "--handoff=binary"]), "--handoff is for the CUDA producer");
            assert_usage(&with(&[producer, "--kernel", kernel]), "--kernel is for the CUDA producer");
        }
        assert_usage(&with(&["--handoff=inline", "--batch=2"]), "--batch is for --handoff timeline");
        assert_usage(
            &with(&["--handoff=inline", "--scene=texture"]),
            "inline hands over fields only, and --scene texture is none: leave one of them out",
        );
        assert_usage(&with(&["--batch=4", "--ring=3"]), "--batch 4 does not fit a ring of 3");
        assert_usage(&with(&["--batch=many"]), "nor `auto`");
        assert_usage(&with(&["--batch=4", "--batch-latency=5"]), "--batch-latency is for --batch auto");
        assert_usage(
            &with(&["--handoff=inline", "--batch-latency=5"]),
            "--batch-latency is for --handoff timeline",
        );
        assert_usage(&with(&["--batch-latency=-1"]), "is not a number of milliseconds");
        assert_usage(&with(&["--present=fifo", "--headless"]), "--present is for a window");
    }
    for command in [&[][..], &["run"], &["verify"]] {
        for handoff in Handoff::ALL.into_iter().filter(|handoff| handoff.has_one_slot()) {
            assert_usage(
                &[command, &["--handoff", handoff.name(), "--ring=2"]].concat(),
                "has one slot, so there is no --ring 2",
            );
        }
    }
    for (arguments, words) in [
        (&["--output=a.png"][..], "--headless"),
        (&["verify", "--present=fifo"], "--present is for a window"),
        (&["--headless", "--scene=texture", "--style=points"], "--style points is for the field"),
        (&["verify", "--window", "--headless"], "cannot be used with"),
        (&["verify", "--window", "--output=a.png"], "--output writes the last frame"),
        (&["verify", "--break=free", "--producer=host"], "--break free"),
        (&["serve", "--headless", "--trace=a.json"], "--trace"),
        (&["serve", "--headless", "--scene=texture"], "--scene texture"),
        (&["serve", "--headless", "--record=a.gif"], "--record"),
        (&["bench", "--force"], "--compare"),
        (&["bench", "--fail-above=1.1"], "--compare"),
        (&["bench", "--compare", "a", "b", "--size=8x8"], "cannot be used with"),
        (&["bench", "--strategies=inline", "--scene=texture"], "inline hands over fields only"),
        (&["bench", "--strategies=compute", "--kernel=a.ptx"], "none of --strategies uses CUDA"),
        (&["bench", "--strategies=compute,binary", "--rings=3"], "none of --strategies has a ring"),
        (&["bench", "--strategies=device-copy", "--batches=1"], "only the strategy timeline"),
        (&["bench", "--strategies=timeline", "--rings=2", "--batches=3"], "nothing to measure"),
        (&["bench", "--quick", "latency"], "cannot be used with"),
        (&["--headless", "devices"], "cannot be used with"),
    ] {
        assert_usage(arguments, words);
    }
    // Options that have an effect are accepted.
    for more in
        [&["--producer=compute", "--ring=2"][..], &["--handoff=binary", "--ring=1"], &["--speed", "-1"]]
    {
        assert_exit(&run(&[SMALL.as_slice(), more].concat()), 0);
    }
}

/// A user may have forgotten that one of these variables is set.
#[test]
fn variables_that_choose_vulkan_s_drivers_are_named() {
    let program = || {
        let mut command = wavefield();
        for name in wavefield_gpu::advice::DRIVER_VARIABLES {
            command.env_remove(name);
        }
        command.args(SMALL);
        command
    };
    for (variables, named) in [
        (&["VK_DRIVER_FILES"][..], "VK_DRIVER_FILES=/no/such.json tells"),
        (&["VK_ICD_FILENAMES"], "VK_ICD_FILENAMES=/no/such.json tells"),
        (&["VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES"], "VK_ADD_DRIVER_FILES=/no/such.json tells"),
    ] {
        let output = program().envs(variables.iter().map(|name| (name, "/no/such.json"))).output().unwrap();
        assert_exit(&output, 1);
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
    }
    // The error names the variable even if a driver was found, because it may not be the intended one.
    let mut command = program();
    let output =
        command.env("VK_LOADER_DRIVERS_DISABLE", "nothing*").arg("--device=no such device").output().unwrap();
    assert!(stderr(&output).contains("VK_LOADER_DRIVERS_DISABLE=nothing* tells"), "{}", stderr(&output));
    let output = program().arg("--device=no such device").output().unwrap();
    assert!(!stderr(&output).contains("VK_"), "{}", stderr(&output));
}

/// If a picture is too large, the error advises a smaller one.
#[test]
fn out_of_memory_says_the_code_and_the_option_that_helps() {
    let Some(stand_in) = StandIn::new() else { return };
    for (size, what) in [("8192x8192", "multisampled colour"), ("12000x12000", "the picture")] {
        let mut command = stand_in.command(&ALL);
        command.args(["--headless", "--frames=1", "--grid=8x8", "--validation=off", "--size", size]);
        let done = stand_in::run(command.env("STAND_IN_MEMORY", "400000000")).unwrap();
        done.check_clean(1).unwrap();
        let text = done.text();
        for part in [what, "ERROR_OUT_OF_DEVICE_MEMORY", "smaller --size or --samples 1"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(!text.contains("--grid"), "{text}");
    }
}

/// With a hand-off by the GPU, the CPU waits for neither side. The summary counts the waits for pacing
/// separately.
#[test]
fn pacing_is_told_apart_from_waits_of_the_hand_off() {
    let waits = |text: &str, name: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("no {name}: {text}"));
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let Some(stand_in) = StandIn::new() else { return };
    // The stand-in does not run kernels inside a command buffer.
    for handoff in common::on_a_stream() {
        let (handoff, blocks) = (handoff.name(), common::cpu_waits(handoff));
        let mut command = stand_in.command(&ALL);
        command.args([
            "--headless",
            "--producer=cuda",
            "--frames=40",
            "--grid=64x64",
            "--size=64x48",
            "--validation=off",
        ]);
        let output = command.args(["--handoff", handoff]).env("STAND_IN_KERNEL_MS", "3").output().unwrap();
        assert_exit(&output, 0);
        let text = stdout(&output);
        assert_eq!(waits(&text, "hand-off ") > 0, blocks, "{handoff}: {text}");
        assert!(waits(&text, "pacing ") > 0 || blocks, "{handoff}: {text}");
        assert!(!text.contains("blocking"), "{text}");
    }
}

/// On a terminal, no line is wider than the terminal. In a pipe, each device has one line.
#[test]
fn the_list_of_devices_fits_the_terminal() {
    let program = wavefield().get_program().to_str().unwrap().to_owned();
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("stty rows 24 cols 60; '{program}' devices"), "/dev/null"])
        .stdin(Stdio::null());
    let Ok(output) = command.output() else {
        return common::skip("`script`, which gives a program a terminal, is not installed");
    };
    assert_exit(&output, 0);
    let text = stdout(&output).replace('\r', "");
    assert!(text.contains("verdict") && text.contains("> marks the device"), "{text}");
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 60).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    let piped = stdout(&run(&["devices"]));
    assert!(
        piped.lines().next().unwrap().contains("device") && piped.lines().next().unwrap().contains("verdict"),
        "{piped}"
    );
}

/// The help of every command lists its options in groups, in the same order, with examples that the program
/// accepts.
#[test]
fn the_help_is_grouped_and_its_examples_are_right() {
    let groups = ["What is shown:", "How it is done:", "What comes out:", "Diagnosis:", "Comparison:"];
    for command in COMMANDS {
        let help = stdout(&run(&[command, &["--help"]].concat()));
        let found: Vec<_> = help.lines().filter(|line| groups.contains(line)).collect();
        let ordered: Vec<_> = groups.into_iter().filter(|group| found.contains(group)).collect();
        let least = if command.first() == Some(&"devices") { 1 } else { 2 };
        assert!(found == ordered && found.len() >= least, "{command:?}: {found:?}");
        // Only the options that clap adds are in no group.
        let loose = help.split_once("\nOptions:\n").map_or("", |(_, rest)| rest);
        let loose = groups.iter().fold(loose, |loose, group| loose.split(group).next().unwrap_or_default());
        assert!(!loose.lines().any(|line| line.trim_start().starts_with("--")), "{command:?}: {loose}");
        let Some((_, examples)) = help.split_once("Examples:\n") else {
            // A command with one use needs no examples.
            assert_eq!(command.first(), Some(&"bench"), "{command:?} has no examples");
            continue;
        };
        assert!(help.contains("Exit codes: 0 done, 1 failed, 2 wrong usage."), "{help}");
        for line in examples.lines().take_while(|line| !line.is_empty()) {
            let line = line.trim_start().split("  ").next().unwrap();
            let mut words: Vec<_> = line.split(' ').skip(1).collect();
            words.push("--help");
            let output = run(&words);
            assert!(output.status.success(), "{line}: {}", stderr(&output));
        }
    }
}
