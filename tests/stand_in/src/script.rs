//! Decides which calls fail, and keeps the journal of all calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use crate::os as libc;

/// One entry of `STAND_IN_FAIL`.
struct Order {
    call: String,
    code: i32,
    first: u64,
    last: u64,
}

static ORDERS: LazyLock<Vec<Order>> = LazyLock::new(|| {
    let text = std::env::var("STAND_IN_FAIL").unwrap_or_default();
    let orders = text.split(',').filter(|text| !text.is_empty());
    orders
        .map(|text| {
            let mut parts = text.split(':');
            let call = parts.next().unwrap_or_default().to_owned();
            let mut number = || parts.next().and_then(|text| text.parse::<i64>().ok());
            let (code, first, times) = (number(), number().unwrap_or(1), number().unwrap_or(1));
            let code = code.unwrap_or_else(|| fail(&format!("STAND_IN_FAIL: no code in `{text}`")));
            Order { call, code: code as i32, first: first as u64, last: (first + times - 1) as u64 }
        })
        .collect()
});

/// Ends the process, because the test's request makes no sense.
fn fail(problem: &str) -> ! {
    eprintln!("stand-in: {problem}");
    std::process::abort()
}

/// Everything that goes into the report.
#[derive(Default)]
struct Journal {
    /// How often each call was made.
    calls: BTreeMap<&'static str, u64>,
    /// The number of living objects of each kind.
    alive: BTreeMap<&'static str, i64>,
    /// The rules that the program broke.
    offences: Vec<String>,
    /// The values of kernels' parameters, whenever they changed.
    values: Vec<String>,
}

static JOURNAL: Mutex<Journal> = Mutex::new(Journal {
    calls: BTreeMap::new(),
    alive: BTreeMap::new(),
    offences: Vec::new(),
    values: Vec::new(),
});

fn journal() -> MutexGuard<'static, Journal> {
    JOURNAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest that one half of the stand-in waits for the other.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Notified at each call.
static CALLED: Condvar = Condvar::new();

/// What follows `CALL:NTH:` in a variable, if this is the call.
fn asked(text: &str, name: &str, count: u64) -> Option<String> {
    let (call, rest) = text.split_once(':')?;
    let (nth, what) = rest.split_once(':')?;
    (call == name && nth.parse() == Ok(count)).then(|| what.to_owned())
}

/// Does what `STAND_IN_TELL` and `STAND_IN_FILE_LIMIT` ask for, if this is the call.
fn tell(name: &str, count: u64) {
    static ASKED: LazyLock<[String; 2]> = LazyLock::new(|| {
        ["STAND_IN_TELL", "STAND_IN_FILE_LIMIT"].map(|name| std::env::var(name).unwrap_or_default())
    });
    if let Some(path) = asked(&ASKED[0], name, count) {
        let _ = std::fs::write(path, "");
    }
    #[cfg(unix)]
    if let Some(bytes) = asked(&ASKED[1], name, count).and_then(|bytes| bytes.parse().ok()) {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: reads the local structure.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
    }
}

/// The call that `name` must wait for, if any.
fn beside(name: &str) -> Option<&'static str> {
    static PAIR: LazyLock<String> = LazyLock::new(|| std::env::var("STAND_IN_BESIDE").unwrap_or_default());
    let (one, other) = PAIR.split_once('+')?;
    match name {
        name if name == one => Some(other),
        name if name == other => Some(one),
        _ => None,
    }
}

/// Whether this library is a copy in a folder `stubs`. A toolkit has such a `libcuda`, which is only for
/// linking.
#[cfg(unix)]
fn is_stub() -> bool {
    // SAFETY: the address is in this library; the name is a static, terminated string.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(is_stub as *const _, &mut info) != 0
            && std::ffi::CStr::from_ptr(info.dli_fname).to_string_lossy().contains("/stubs/")
    }
}

/// Notes a call. If it must fail, returns the code.
pub(crate) fn call(name: &'static str) -> Option<i32> {
    #[cfg(unix)]
    if name == "cuInit" && is_stub() {
        return Some(34); // CUDA_ERROR_STUB_LIBRARY
    }
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        if std::env::var_os("STAND_IN_REPORT").is_some() {
            // SAFETY: a function without arguments, in a library that stays loaded.
            unsafe { libc::atexit(report) };
        }
    });
    let mut journal = journal();
    let count = journal.calls.entry(name).or_default();
    *count += 1;
    let count = *count;
    CALLED.notify_all();
    tell(name, count);
    if let Some(other) = beside(name).filter(|_| count == 1) {
        let alone = |journal: &mut Journal| !journal.calls.contains_key(other);
        let waited = CALLED.wait_timeout_while(journal, PATIENCE, alone);
        let (mut journal, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            journal.offences.push(format!("{other} was not called beside {name}"));
        }
    }
    let order = ORDERS.iter().find(|order| order.call == name && (order.first..=order.last).contains(&count));
    order.map(|order| order.code)
}

/// Notes that an object was made (1) or given back (-1).
pub(crate) fn alive(kind: &'static str, change: i64) {
    *journal().alive.entry(kind).or_default() += change;
}

/// Notes that the program broke a rule.
pub(crate) fn offence(what: String) {
    journal().offences.push(what);
}

/// Notes the parameter values of a launched kernel.
pub(crate) fn values(values: &[f32]) {
    let text = values.iter().map(f32::to_string).collect::<Vec<_>>().join(" ");
    let mut journal = journal();
    if journal.values.last() != Some(&text) {
        journal.values.push(text);
    }
}

/// The bytes of device memory that both APIs use.
static USED: AtomicU64 = AtomicU64::new(0);

/// The total bytes of device memory.
pub(crate) fn memory_size() -> u64 {
    number("STAND_IN_MEMORY").unwrap_or(1 << 36)
}

/// The bytes of device memory in use.
pub(crate) fn memory_used() -> u64 {
    USED.load(Ordering::SeqCst)
}

/// Takes `bytes` of device memory. Returns false if too little is left.
pub(crate) fn take_memory(bytes: u64) -> bool {
    let take = |used: u64| used.checked_add(bytes).filter(|used| *used <= memory_size());
    USED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
}

/// Gives `bytes` of device memory back.
pub(crate) fn give_memory(bytes: u64) {
    USED.fetch_sub(bytes, Ordering::SeqCst);
}

/// The number in an environment variable.
pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Writes the report, one entry per line: `call NAME COUNT`, `left KIND COUNT` for objects that were not
/// given back, `descriptor FD` for each handle that is still open, `offence WHAT`, `values V V` for a
/// kernel's parameter values whenever they changed, and at last `end`.
extern "C" fn report() {
    let journal = journal();
    let mut text = String::new();
    for (name, count) in &journal.calls {
        text += &format!("call {name} {count}\n");
    }
    for (kind, count) in journal.alive.iter().filter(|(_, count)| **count != 0) {
        text += &format!("left {kind} {count}\n");
    }
    for descriptor in crate::shared::open_descriptors() {
        text += &format!("descriptor {descriptor}\n");
    }
    for offence in &journal.offences {
        text += &format!("offence {offence}\n");
    }
    for values in &journal.values {
        text += &format!("values {values}\n");
    }
    text += "end\n";
    if let Some(path) = std::env::var_os("STAND_IN_REPORT") {
        let _ = std::fs::write(path, text);
    }
}
