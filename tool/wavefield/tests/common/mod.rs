//! What the tests of the program share.

#![allow(dead_code, unused_imports)] // Each test file uses its own part of this.

use vulkan_cuda::DeviceUuid;

#[path = "../../../run/tests/common/mod.rs"]
mod engine;

pub use engine::*;

/// The UUID of the first Vulkan device. A child process that tries kernels without Vulkan needs it in
/// `STAND_IN_UUID`.
pub fn first_uuid() -> String {
    let table = stdout(&run(&["devices"]));
    let uuid = table.split_whitespace().find(|word| DeviceUuid::parse(word).is_some());
    uuid.unwrap_or_else(|| panic!("{table}")).to_owned()
}
