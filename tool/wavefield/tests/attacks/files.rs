//! Paths that are not regular files, files that cannot be written, arguments that are not text.

use std::borrow::BorrowMut;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::XattrFlags;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, assert_exit, process, read_png, stderr, stdout, wavefield};
use crate::stand_in::{ALL, StandIn, finish};

const SMALL: [&str; 5] =
    ["--headless", "--grid=16x16", "--size=64x48", "--producer=compute", "--validation=off"];
const BENCH: [&str; 6] = [
    "bench",
    "--strategies=compute,render-only",
    "--grids=16x16",
    "--rounds=1",
    "--round-ms=5",
    "--size=64x48",
];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The program with these arguments, which may be any bytes.
fn command<S: AsRef<OsStr>>(first: &[&str], more: impl IntoIterator<Item = S>) -> Command {
    let mut command = wavefield();
    command.args(first).args(more);
    command
}

/// Runs a command. It must end in time, with this exit code and these words.
#[track_caller]
fn expect(mut command: impl BorrowMut<Command>, code: i32, parts: &[&str]) -> Output {
    let output = finish(command.borrow_mut()).unwrap();
    assert_exit(&output, code);
    let text = stderr(&output);
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    for bad in ["panicked", ".part", ".wavefield-", "stream did not contain"] {
        assert!(!text.contains(bad), "{text}");
    }
    output
}

fn names(folder: &TempDir) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

fn fifo(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo is installed").success());
    path
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Nobody writes to the FIFO, and the devices never end. The program must read none of them.
#[test]
fn what_never_ends_is_neither_a_kernel_nor_a_record() {
    let folder = folder();
    let fifo = fifo(&folder, "fifo");
    for path in [&*fifo, Path::new("/dev/zero"), Path::new("/dev/tty")] {
        let named = path.to_str().unwrap();
        expect(command(&["--headless", "--kernel"], [path]), 1, &["cannot read", named, "regular file"]);
        let bench = ["bench".as_ref(), "--kernel".as_ref(), path];
        expect(command(&[], bench), 1, &["cannot read", named, "regular file"]);
        let compared = ["bench".as_ref(), "--compare".as_ref(), path, path];
        expect(command(&[], compared), 1, &["cannot read", named, "regular file"]);
    }
    // A huge sparse file, which takes no space.
    let huge = folder.path().join("huge.ptx");
    File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    expect(command(&["--headless", "--kernel"], [&*huge]), 1, &["huge.ptx", "16777216 bytes"]);
    let compared = ["bench".as_ref(), "--compare".as_ref(), &*huge, &*huge];
    expect(command(&[], compared), 1, &["huge.ptx", "67108864 bytes"]);
}

#[test]
fn a_kernel_that_is_no_text_is_told_so() {
    let folder = folder();
    let path = folder.path().join("k.ptx");
    for (bytes, what) in [
        (&b"\x7fELF\x02\x01.entry k("[..], "machine code"),
        (b"\xff\xfe\x00\xd8", "broken UTF-16"),
        (b"", "empty"),
    ] {
        fs::write(&path, bytes).unwrap();
        expect(command(&["--headless", "--kernel"], [&*path]), 1, &["k.ptx", what, "cannot be PTX"]);
    }
}

/// The record has the command line, whatever it contains, and the file has exactly the given name.
#[test]
fn names_that_are_no_text_are_written() {
    let folder = folder();
    let path = |ending: &str| {
        let name = [b"\xff\xfe", ending.as_bytes()].concat();
        folder.path().join(OsStr::from_bytes(&name))
    };
    let (trace, verified, measured, picture) = (path("t.json"), path("v.json"), path("b.json"), path(".png"));
    expect(command(&SMALL, ["--trace".as_ref(), &*trace]), 0, &[]);
    expect(command(&SMALL, ["--output".as_ref(), &*picture]), 0, &[]);
    expect(command(&["verify"], SMALL).args(["--json".as_ref(), &*verified]), 0, &[]);
    expect(command(&BENCH, ["--json".as_ref(), &*measured]), 0, &[]);
    assert!(read_png(&picture).is_ok());
    json(&trace);
    for path in [verified, measured] {
        let command = json(&path)["command"].as_str().unwrap().to_owned();
        assert!(command.starts_with("wavefield ") && command.contains('\u{fffd}'), "{command}");
    }
}

#[test]
fn links_are_followed() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("far")).unwrap();
    fs::write(path("far/old.png"), "old").unwrap();
    symlink("far/old.png", path("old.png")).unwrap();
    // A chain of two links, whose target does not exist yet.
    symlink("../far/new.png", path("far/link.png")).unwrap();
    symlink("far/link.png", path("new.png")).unwrap();
    for name in ["old.png", "new.png"] {
        expect(command(&SMALL, ["--output".as_ref(), &*path(name)]), 0, &[]);
        assert!(fs::symlink_metadata(path(name)).unwrap().is_symlink(), "{name}");
        assert!(!fs::symlink_metadata(path("far").join(name)).unwrap().is_symlink());
        assert!(read_png(&path("far").join(name)).is_ok());
    }
    symlink("circle.png", path("circle.png")).unwrap();
    expect(command(&SMALL, ["--output".as_ref(), &*path("circle.png")]), 1, &["circle.png", "symbolic link"]);
}

#[test]
fn mode_and_owner_of_an_old_file_stay() {
    let folder = folder();
    let (old, new) = (folder.path().join("a.png"), folder.path().join("b.png"));
    fs::write(&old, "old").unwrap();
    // Only the superuser can give a file away.
    let given = chown(&old, Some(12_345), Some(54_321)).is_ok();
    fs::set_permissions(&old, Permissions::from_mode(0o2640)).unwrap();
    let before = fs::metadata(&old).unwrap();
    let what = |found: &fs::Metadata| (found.mode(), found.uid(), found.gid());
    for path in [&old, &new] {
        expect(command(&SMALL, ["--output".as_ref(), &**path]), 0, &[]);
        assert!(read_png(path).is_ok());
    }
    assert_eq!(what(&fs::metadata(&old).unwrap()), what(&before));
    assert_eq!((given, before.uid() == 12_345), (given, given));
    // A new file has the usual mode and owner.
    let usual = folder.path().join("usual");
    fs::write(&usual, "").unwrap();
    assert_eq!(what(&fs::metadata(&new).unwrap()), what(&fs::metadata(&usual).unwrap()));
}

/// The group of a file stays, so users who share it by its group keep their access. Only the superuser could
/// also keep another user as the owner.
#[test]
fn the_group_of_an_old_file_stays() {
    let folder = folder();
    let path = folder.path().join("a.png");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    if chown(&path, Some(12_345), Some(54_321)).is_err() {
        return common::skip("only the superuser can give a file away");
    }
    // Who is not in the group cannot keep it, so it loses its rights, and its members get no more as others.
    for (groups, before, kept) in [
        ("65534,54321", 0o660, (65534, 54_321, 0o660)),
        ("65534", 0o666, (65534, 65534, 0o606)),
        ("65534", 0o646, (65534, 65534, 0o604)),
    ] {
        chown(&path, Some(12_345), Some(54_321)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--groups", groups]);
        command.arg(wavefield().get_program()).args(SMALL).arg("--output").arg(&path);
        match finish(&mut command).map(|output| (output.status.code(), stderr(&output))) {
            Ok((Some(0), _)) => {}
            Ok((_, text)) if text.contains("setpriv") => return common::skip(text.trim()),
            other => panic!("{other:?}"),
        }
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), kept);
        assert!(read_png(&path).is_ok());
    }
}

/// With an ACL, a file's group bits are the most that anyone in the ACL may do, not what its group may do.
#[test]
fn nobody_gets_more_rights_than_an_acl_gave() {
    const ACL: &str = "system.posix_acl_access";
    // The version, then tag, rights and id of each: the owner, user 1000, the group, the mask, the others.
    let entries = [(1, 6, !0), (2, 6, 1000), (4, 0, !0), (0x10, 6, !0), (0x20, 0, !0_u32)];
    let entry = |&(tag, rights, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [2_u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat();
    let folder = folder();
    let path = folder.path().join("a.png");
    fs::write(&path, "old").unwrap();
    let set = |path: &Path, name: &str| rustix::fs::setxattr(path, name, &acl, XattrFlags::empty());
    let has = |path: &Path| {
        let mut found = [0; 1024];
        rustix::fs::getxattr(path, ACL, &mut found).map(|size| found[..size].to_vec())
    };
    if set(&path, ACL).is_err() {
        return common::skip("this file system has no ACLs");
    }
    let draw = || drop(expect(command(&SMALL, ["--output".as_ref(), &*path]), 0, &[]));
    draw();
    assert!(read_png(&path).is_ok());
    assert_eq!((has(&path), fs::metadata(&path).unwrap().mode() & 0o777), (Ok(acl.clone()), 0o660));
    // A file without an ACL, in a folder that gives one to new files.
    rustix::fs::removexattr(&path, ACL).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
    set(folder.path(), "system.posix_acl_default").unwrap();
    draw();
    assert_eq!((has(&path).ok(), fs::metadata(&path).unwrap().mode() & 0o777), (None, 0o664));
}

/// The program with its own file system in `folder`, so that the machine's devices are safe. `null`, `full`
/// and `stdout` are like those in `/dev`, and `plain` is a mounted file. The exit code is 99 if the program
/// has changed them.
fn among_devices(folder: &TempDir) -> Option<Command> {
    let script = "mount -t tmpfs none $0 && touch $0/null $0/full $0/plain && mount --bind /dev/null $0/null &&
        mount --bind /dev/full $0/full && mount --bind $0/plain $0/plain && ln -s /proc/self/fd/1 $0/stdout || exit 98
        \"$@\"; code=$?
        test -c $0/null && test -c $0/full && test -L $0/stdout && test $(ls -A $0 | wc -l) = 4 || exit 99
        exit $code";
    let superuser = fs::metadata("/proc/self").unwrap().uid() == 0;
    let start = || {
        let mut command = Command::new("unshare");
        command.args([if superuser { "-m" } else { "-rm" }, "sh", "-c", script]).arg(folder.path());
        command
    };
    match start().arg("true").output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            common::skip(&format!("cannot mount a file system: {}", stderr(&output).trim()));
            return None;
        }
        Err(error) => {
            common::skip(&format!("no unshare: {error}"));
            return None;
        }
    }
    let mut command = start();
    command.arg(wavefield().get_program());
    Some(command)
}

#[test]
fn a_device_stays_a_device() {
    let folder = folder();
    let [null, full] = ["null", "full"].map(|name| folder.path().join(name));
    let Some(mut command) = among_devices(&folder) else { return };
    // Several outputs may go to `/dev/null`.
    expect(command.args(SMALL).arg("--output").arg(&null).arg("--trace").arg(&null), 0, &[]);
    let Some(mut command) = among_devices(&folder) else { return };
    expect(command.args(SMALL).arg("--output").arg(&full), 1, &["full: No space left"]);
}

/// In containers, a file may be mounted: it can be written, but not replaced. The program must report that
/// before the first frame.
#[test]
fn a_file_that_is_mounted_is_refused_at_once() {
    let folder = folder();
    let Some(mut command) = among_devices(&folder) else { return };
    command.args(SMALL).arg("--frames=1000000000").arg("--output").arg(folder.path().join("plain"));
    expect(command, 1, &["plain: it is a mount point"]);
}

#[test]
fn a_fifo_is_written_to_and_stays() {
    let folder = folder();
    let path = fifo(&folder, "picture");
    let copy = folder.path().join("copy.png");
    // Without `timeout`, the reader would wait for ever if the FIFO is replaced.
    let mut reader = Command::new("timeout");
    reader.arg("60").arg("cat").arg(&path).stdout(File::create(&copy).unwrap());
    let mut reader = reader.spawn().expect("timeout is installed");
    let written = finish(command(&SMALL, ["--output".as_ref(), &*path]).borrow_mut());
    if !fs::metadata(&path).unwrap().file_type().is_fifo() {
        let _ = reader.kill();
    }
    let _ = reader.wait();
    assert_exit(&written.unwrap(), 0);
    assert!(read_png(&copy).is_ok());
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    // Now nobody reads.
    expect(command(&SMALL, ["--output".as_ref(), &*path]), 1, &["picture", "nothing reads"]);
}

/// Only the picture goes to standard output. All text goes to standard error.
#[test]
fn a_dash_is_standard_output() {
    let folder = folder();
    let check = |bytes: &[u8], text: &str| {
        let path = folder.path().join("copy.png");
        fs::write(&path, bytes).unwrap();
        assert!(read_png(&path).is_ok(), "{text}");
        assert!(text.contains("frames  ") && text.contains("device  "), "{text}");
    };
    let devices = self::folder();
    let mut links = vec![("-".into(), None)];
    if let Some(command) = among_devices(&devices) {
        links.push((devices.path().join("stdout"), Some(command)));
    }
    for (name, command) in links {
        let mut command = command.unwrap_or_else(wavefield);
        command.args(SMALL).arg("--output").arg(name).current_dir(folder.path());
        let output = command.output().unwrap();
        assert_exit(&output, 0);
        check(&output.stdout, &stderr(&output));
        // Standard output may be a file with contents, opened to append.
        let path = folder.path().join("redirected");
        fs::write(&path, "before ").unwrap();
        let append = OpenOptions::new().append(true).open(&path).unwrap();
        let output = command.stdout(append).stderr(Stdio::piped()).output().unwrap();
        assert_exit(&output, 0);
        let whole = fs::read(&path).unwrap();
        check(whole.strip_prefix(b"before ").expect("it is still there"), &stderr(&output));
    }
    let output = command(&["verify"], SMALL).args(["--json", "-"]).output().unwrap();
    assert_exit(&output, 0);
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["schema"], "wavefield-verify/1");
    assert!(stderr(&output).contains("checked  "), "{}", stderr(&output));
    let output = command(&BENCH, ["--report", "-"]).output().unwrap();
    assert_exit(&output, 0);
    assert!(stdout(&output).trim_end().ends_with("</html>"), "{}", stdout(&output));
    assert_eq!(fs::metadata(folder.path().join("-")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn one_output_that_fails_leaves_the_others() {
    let (folder, devices) = (folder(), folder());
    let path = |name: &str| folder.path().join(name);
    let full = devices.path().join("full");
    let Some(mut command) = among_devices(&devices) else { return };
    command.args(BENCH).arg("--json").arg(&full).arg("--report").arg(path("b.html"));
    let output = expect(command, 1, &["full: No space", "b.html"]);
    assert!(stdout(&output).contains("compute"), "{}", stdout(&output));
    assert!(fs::read_to_string(path("b.html")).unwrap().trim_end().ends_with("</html>"));
    let Some(mut command) = among_devices(&devices) else { return };
    command.args(SMALL).arg("--output").arg(&full).arg("--trace").arg(path("t.json"));
    let output = expect(command, 1, &["full: No space", "t.json"]);
    assert!(stdout(&output).contains("frames  "), "the summary is missing: {}", stdout(&output));
    json(&path("t.json"));
    // Both failures are reported.
    let Some(mut command) = among_devices(&devices) else { return };
    let output = expect(command.args(SMALL).arg("--output").arg(&full).arg("--trace").arg(&full), 1, &[]);
    assert_eq!(stderr(&output).matches("full: No space").count(), 2, "{}", stderr(&output));
}

/// After a stop, the program still writes what it has traced so far.
#[test]
fn a_stop_leaves_the_trace() {
    let folder = folder();
    let (picture, trace) = (folder.path().join("a.png"), folder.path().join("t.json"));
    let arguments =
        ["--frames=1000000".as_ref(), "--output".as_ref(), &*picture, "--trace".as_ref(), &*trace];
    let mut child = command(&SMALL, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process::wait_for(&mut child, "frames", process::has_worked);
    let killed = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_exit(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("no picture was written") && text.contains("t.json"), "{text}");
    assert!(stdout(&output).contains("frames  "), "{}", stdout(&output));
    assert_eq!(names(&folder), ["t.json"]);
    let events = json(&trace)["traceEvents"].as_array().unwrap().clone();
    assert!(events.iter().any(|event| event["name"] == "draw"), "the trace has frames");
}

/// The kernel never ends. After the watchdog's error, the program still writes the trace and the record.
#[test]
fn the_watchdogs_end_leaves_the_trace_and_the_record() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = folder();
    let (record, trace) = (folder.path().join("v.json"), folder.path().join("t.json"));
    let mut command = stand_in.command(&ALL);
    command.args("verify --headless --producer=cuda --grid=16x16 --size=64x48 --validation=off".split(' '));
    command.args(["--kernel", concat!(env!("CARGO_MANIFEST_DIR"), "/../handoff/kernels/test/spin.ptx")]);
    command.args(["--timeout=1", "--json"]).arg(&record).arg("--trace").arg(&trace);
    let parts = ["no frame was finished for 1 s", "v.json", "t.json", "marked incomplete"];
    let output = expect(&mut command, 1, &parts);
    assert!(stdout(&output).contains("checked  "), "{}", stdout(&output));
    let record = json(&record);
    assert_eq!((&record["complete"], &record["tally"]["frames"]), (&false.into(), &0.into()), "{record}");
    assert!(record["frames"].as_u64().unwrap() > 0, "{record}");
    assert!(json(&trace)["traceEvents"].is_array());
}

/// After a failed call to the driver, the program still writes what it has found so far.
#[test]
fn a_fault_leaves_the_record_of_the_frames_before() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = folder();
    let (record, bench) = (folder.path().join("v.json"), folder.path().join("b.json"));
    let mut command = stand_in.command(&ALL);
    command.args("verify --headless --producer=cuda --grid=16x16 --size=64x48 --validation=off".split(' '));
    command.arg("--json").arg(&record).env("STAND_IN_FAIL", "cuLaunchKernel:719:30");
    expect(&mut command, 1, &["719", "v.json", "marked incomplete"]);
    let record = json(&record);
    assert!(record["tally"]["frames"].as_u64().unwrap() > 3 && record["complete"] == false, "{record}");
    // The report has the cells before the one that failed.
    let mut command = stand_in.command(&ALL);
    command.args(BENCH.map(|argument| argument.replace("compute,render-only", "render-only,timeline")));
    command.arg("--json").arg(&bench).env("STAND_IN_FAIL", "cuLaunchKernel:719");
    expect(&mut command, 1, &["719", "b.json", "marked incomplete"]);
    let report = json(&bench);
    assert_eq!(
        (&report["cells"][0]["strategy"], &report["complete"]),
        (&"render-only".into(), &false.into())
    );
}

/// Each ping-pong launches two kernels. The first 250 ping-pongs do not count.
#[test]
fn a_fault_leaves_the_round_trips_before() {
    let Some(stand_in) = StandIn::new() else { return };
    let folder = folder();
    let path = folder.path().join("l.json");
    let host = ["host_vulkan_us", "host_cuda_us", "host_stream_us"];
    // The fault comes in the second 250 round trips, or in those of the CPU through CUDA.
    for (rounds, nth, measured) in [("500", 1200, [false; 3]), ("250", 1100, [true, true, false])] {
        let mut command = stand_in.command(&ALL);
        command.args(["bench", "latency", "--rounds", rounds, "--json"]).arg(&path);
        command.env("STAND_IN_FAIL", format!("cuLaunchKernel:719:{nth}"));
        let output = expect(&mut command, 1, &["719", "l.json", "marked incomplete"]);
        assert!(stdout(&output).contains("INCOMPLETE"), "{}", stdout(&output));
        let record = json(&path);
        assert_eq!((&record["complete"], &record["rounds"]), (&false.into(), &250.into()), "{record}");
        assert_eq!(host.map(|way| record[way]["p50"].is_number()), measured, "{record}");
    }
    // If nothing was measured yet, there is nothing to write.
    std::fs::remove_file(&path).unwrap();
    let mut command = stand_in.command(&ALL);
    command.args(["bench", "latency", "--json"]).arg(&path).env("STAND_IN_FAIL", "cuLaunchKernel:719:600");
    let output = expect(&mut command, 1, &["719"]);
    assert!(!path.exists() && stdout(&output).is_empty(), "{}", stdout(&output));
}

/// By default, SIGXFSZ would end the process. The program makes the write fail instead, as on a full disk.
/// The software driver of Debian 13 keeps its memory in a file, so there is no memory to draw in.
#[test]
fn a_limit_on_file_sizes_is_told() {
    let folder = folder();
    let path = folder.path().join("a.png");
    fs::write(&path, "old").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 4; exec \"$@\"", "sh"]).arg(wavefield().get_program());
    command.args("--headless --frames=1 --grid=64x64 --size=640x480 --validation=off --output".split(' '));
    let output = command.arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert_exit(&output, 1);
    let said = stderr(&output);
    assert!(
        said.contains("a.png: File too large") || said.contains("memory could not be accessed (SIGBUS)"),
        "{said}"
    );
    assert!(said.contains("ulimit -f"), "{said}");
    assert!(!said.contains(".part"), "only the user's name: {said}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(&folder), ["a.png"]);
}

/// Two outputs to the same file are refused before anything is drawn, whatever names the file has.
#[test]
fn one_file_for_two_outputs_is_wrong_usage() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.json"), "old").unwrap();
    fs::hard_link(path("a.json"), path("hard.json")).unwrap();
    symlink("a.json", path("link.json")).unwrap();
    symlink("not-there", path("dangling.json")).unwrap();
    fs::create_dir(path("inner")).unwrap();
    let mut endless = vec!["--frames=1000000000"];
    endless.extend(SMALL);
    for (json, trace) in [
        ("a.json", "a.json"),
        ("new.json", "new.json"),
        ("new.json", "./inner/../new.json"),
        ("a.json", "hard.json"),
        ("link.json", "a.json"),
        ("dangling.json", "not-there"),
        ("-", "-"),
    ] {
        let mut command = command(&["verify"], &endless);
        command.args(["--json", json, "--trace", trace]).current_dir(folder.path());
        expect(&mut command, 2, &[json, trace, "same file"]);
    }
    expect(command(&BENCH, ["--json=x", "--report=x"]).current_dir(folder.path()), 2, &["same file"]);
    expect(command(&SMALL, ["--output=x", "--trace=./x"]).current_dir(folder.path()), 2, &["same file"]);
    assert_eq!(fs::read(path("a.json")).unwrap(), b"old");
    assert_eq!(names(&folder), ["a.json", "dangling.json", "hard.json", "inner", "link.json"]);
}

/// A name that cannot be written is reported before the first of very many frames, as the user gave it.
#[test]
fn a_name_that_cannot_be_written_is_known_at_once() {
    let folder = folder();
    fs::write(folder.path().join("file"), "").unwrap();
    let long = "x".repeat(300);
    let names: [(&str, &str); 5] = [
        (&long, "File name too long"),
        ("no/such/folder/a", "No such file"),
        ("file/a", "Not a directory"),
        ("folder/", "directory"),
        ("/proc/a", "No such file"),
    ];
    for (name, reason) in names {
        for option in ["--output", "--trace"] {
            let mut command = command(&SMALL, ["--frames=1000000000", option, name]);
            expect(command.current_dir(folder.path()), 1, &["cannot write", name, reason]);
        }
        for option in ["--json", "--report"] {
            let mut command = command(&["bench", "--rounds=1000"], [option, name]);
            expect(command.current_dir(folder.path()), 1, &["cannot write", name, reason]);
        }
    }
    assert_eq!(self::names(&folder), ["file"]);
}

/// A read-only file is refused, not replaced.
#[test]
fn a_file_that_may_not_be_written_stays() {
    let folder = folder();
    let path = folder.path().join("a.png");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let mut command = command(&SMALL, ["--output".as_ref(), &*path]);
    if OpenOptions::new().write(true).open(&path).is_ok() {
        use std::os::unix::process::CommandExt;
        // The superuser may write everything, so run the program as the user `nobody`.
        command.uid(65534).gid(65534);
    }
    let Ok(output) = command.output() else {
        return common::skip("the program cannot be run as another user here");
    };
    assert_exit(&output, 1);
    assert!(stderr(&output).contains("a.png: Permission denied"), "{}", stderr(&output));
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[test]
fn an_ending_that_promises_another_format_is_wrong_usage() {
    let folder = folder();
    for (first, output, format) in [
        (&SMALL[..], "--output=x.jpg", "end with .png"),
        (&SMALL, "--output=x.txt", "end with .png"),
        (&SMALL, "--trace=x.png", "end with .json or .svg"),
        (&BENCH, "--report=x.pdf", "end with .html"),
    ] {
        expect(command(first, [output]).current_dir(folder.path()), 2, &["x.", format]);
    }
    assert!(names(&folder).is_empty());
    expect(command(&SMALL, ["--output=X.PNG", "--trace=x"]).current_dir(folder.path()), 0, &[]);
    assert_eq!(names(&folder), ["X.PNG", "x"]);
}
