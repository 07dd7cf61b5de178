//! Windows, on a display and in a browser.

#[cfg(target_os = "linux")]
#[path = "../common/browser.rs"]
mod chromium;
#[path = "../common/mod.rs"]
mod common;

#[cfg(target_os = "linux")]
mod browser;
#[cfg(target_os = "linux")]
mod reload;
#[cfg(target_os = "linux")]
mod window;
