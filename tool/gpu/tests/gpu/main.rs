//! What the tools are made of, and the library's safety: what must not compile, and what safe code may not do.

#[cfg(target_os = "linux")]
mod handles;
mod refused;
#[cfg(target_os = "linux")]
mod sound;

/// Lets only one test at a time use the drivers. Without it `sound.rs` hung on an H100 (driver 580), probably
/// because the loader unloads NVIDIA's driver with the last instance while other threads use it: see
/// `crates/vulkan-cuda/tests/library/main.rs`.
#[cfg(target_os = "linux")]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
