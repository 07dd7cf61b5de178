//! Which CUDA device *is* this Vulkan device? Neither API's numbering says, nor does the name: only the UUID does.
//!
//! ```sh
//! cargo run --example 01_match
//! ```

pub mod common;

use common::Outcome;
use wavefield::Result;
use wavefield::cuda::Driver;
use wavefield::interop::find_twin;

fn main() -> std::process::ExitCode {
    common::exit(run())
}

/// Prints every pair.
pub fn run() -> Result<Outcome> {
    let instance = match common::instance()? {
        Ok(instance) => instance,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    // The driver is opened at run time, so a machine without CUDA runs this too.
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => return Ok(Outcome::Skipped(error.to_string())),
    };
    let cuda = driver.devices()?;

    let mut reasons = Vec::new();
    let mut pairs = 0;
    for adapter in instance.adapters()? {
        let vulkan = adapter.info();
        // It compares UUIDs (on Windows LUIDs), then asks both sides whether memory and timelines can be shared.
        match find_twin(vulkan, &cuda) {
            Ok(twin) => {
                println!("Vulkan: {} ({})", vulkan.name, vulkan.uuid);
                println!("CUDA:   {} ({}), device {}", twin.name, twin.uuid, twin.ordinal);
                pairs += 1;
            }
            Err(mismatch) => reasons.push(format!("{}: {mismatch}", vulkan.name)),
        }
    }
    if pairs == 0 {
        return Ok(Outcome::Skipped(format!("no device is shared: {}", reasons.join("; "))));
    }
    Ok(Outcome::Done)
}
