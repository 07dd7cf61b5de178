//! The library's tests, on this machine's GPU and on the stand-in.

// Each example has its own copy of what it uses from the first example.
#![allow(clippy::duplicate_mod)]

// What the tests use of the examples, without running them.
#[cfg(target_os = "linux")]
#[path = "../../examples/fill/mod.rs"]
mod fill;
#[allow(dead_code)]
#[path = "../../examples/01_match.rs"]
mod match_devices;
#[cfg(target_os = "linux")]
#[path = "../../examples/readback/mod.rs"]
mod readback;
#[allow(dead_code)]
#[path = "../../examples/06_your_device.rs"]
mod your_device;

// The bookkeeping of the rings, which is private, on the library's `ring`. Some of it is only for the rings themselves.
#[allow(dead_code)]
#[path = "../../src/frames.rs"]
mod frames;
#[allow(dead_code)]
#[path = "../../src/ledger.rs"]
mod ledger;

#[cfg(target_os = "linux")]
mod cuda_memory;
mod driver;
mod examples;
mod exercises;
mod ledger_to_cuda;
mod ledger_to_vulkan;
mod plan;
#[cfg(target_os = "linux")]
mod ring_to_cuda;
#[cfg(target_os = "linux")]
mod shared_ring;

use std::sync::{Mutex, MutexGuard, PoisonError};

use vulkan_cuda::ring;

/// Lets only one test at a time use the drivers. Each makes an instance and destroys it, and with the last
/// instance the loader unloads NVIDIA's driver. Other threads that used the driver meanwhile once hung on an
/// H200 (driver 580).
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens both APIs. `None`, and a skip, if they are not available.
#[cfg(target_os = "linux")]
fn open() -> Option<(MutexGuard<'static, ()>, match_devices::Gpu)> {
    open_with(|_| Default::default())
}

#[cfg(target_os = "linux")]
fn open_with(
    choose: fn(ash::vk::PhysicalDeviceFeatures) -> ash::vk::PhysicalDeviceFeatures,
) -> Option<(MutexGuard<'static, ()>, match_devices::Gpu)> {
    let alone = alone();
    let gpu =
        wavefield_test_support::opened(match_devices::open_with(choose), match_devices::is_unsupported)?;
    Some((alone, gpu))
}

/// The errors that `work` meets in a `Drop`. A process has one handler for them, so the tests share this one.
/// The caller is [`alone`].
#[cfg(target_os = "linux")]
fn cleanup_errors(work: impl FnOnce()) -> Vec<String> {
    static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    vulkan_cuda::on_cleanup_error(|error| {
        eprintln!("{error}");
        ERRORS.lock().unwrap().push(error.to_string());
    });
    ERRORS.lock().unwrap().clear();
    work();
    std::mem::take(&mut ERRORS.lock().unwrap())
}
