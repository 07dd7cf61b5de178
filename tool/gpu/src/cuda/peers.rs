use super::api::{self, Code};
use super::{CudaInfo, Driver};

/// Returns a line of text for each device, which names the devices that it reaches over NVLink or PCIe; none
/// for fewer than two devices. `_driver` proves that the driver is loaded.
pub fn peers(_driver: Driver, devices: &[&CudaInfo]) -> Vec<String> {
    if devices.len() < 2 {
        return Vec::new();
    }
    let line = |from: &&CudaInfo| {
        let others = devices.iter().filter(|to| to.ordinal != from.ordinal);
        let reached = others.map(|to| Ok(reaches(from, to)?.then(|| format!("CUDA {}", to.ordinal))));
        let reached = reached.collect::<Result<Vec<_>, String>>();
        let from = format!("CUDA {}", from.ordinal);
        match reached.map(|reached| reached.into_iter().flatten().collect::<Vec<_>>().join(", ")) {
            Err(error) => format!("{from}: which GPUs it reaches is unknown: {error}"),
            Ok(none) if none.is_empty() => {
                format!("{from} reaches no other GPU: copies go through the CPU's memory")
            }
            Ok(reached) => format!("{from} reaches {reached} directly"),
        }
    };
    devices.iter().map(line).collect()
}

fn reaches(from: &CudaInfo, to: &CudaInfo) -> Result<bool, String> {
    let check = |call, code: Code| match code {
        Code::SUCCESS => Ok(()),
        code => Err(format!("{call} answered {} for CUDA {} and {}", code.0, from.ordinal, to.ordinal)),
    };
    let (mut here, mut there, mut can) = (0, 0, 0);
    // SAFETY: each call writes one integer; the driver is loaded (`peers` takes it).
    unsafe {
        check("cuDeviceGet", api::cuDeviceGet(&mut here, from.ordinal))?;
        check("cuDeviceGet", api::cuDeviceGet(&mut there, to.ordinal))?;
        check("cuDeviceCanAccessPeer", api::cuDeviceCanAccessPeer(&mut can, here, there))?;
    }
    Ok(can != 0)
}
