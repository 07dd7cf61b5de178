//! CUDA without Vulkan: its driver is found by name, lists its devices, and runs a stream. `scripts/windows.sh` runs this in
//! Wine, with the stand-in as `nvcuda.dll`.

use cudarc::driver::CudaContext;
use vulkan_cuda::Driver;
use wavefield_test_support as common;

#[test]
fn a_driver_lists_its_devices_and_runs_a_stream() {
    let _alone = crate::alone();
    let devices = match Driver::load().and_then(|driver| driver.devices()) {
        Ok(devices) if !devices.is_empty() => devices,
        found => return common::skip_without_gpu(&format!("there is no CUDA device: {:?}", found.err())),
    };
    for (ordinal, device) in devices.iter().enumerate() {
        assert_eq!(device.ordinal, ordinal as i32);
        assert!(!device.name.is_empty() && (cfg!(windows) || device.luid.is_none()), "{device:?}");
        let is_same = |other: &vulkan_cuda::CudaInfo| {
            other.uuid == device.uuid || (other.luid.is_some() && other.luid == device.luid)
        };
        assert!(!devices[..ordinal].iter().any(is_same), "{devices:?}");
    }
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let sent: Vec<u32> = (0..1000).collect();
    let memory = stream.clone_htod(&sent).unwrap();
    let copy = stream.clone_dtod(&memory).unwrap();
    let read = stream.clone_dtoh(&copy).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(read, sent);
}

#[cfg(target_os = "linux")]
#[test]
fn it_does_so_on_the_stand_in() {
    use common::stand_in::{StandIn, run};
    let Some(stand_in) = StandIn::new() else { return };
    let mut test = stand_in.test(module_path!(), "a_driver_lists_its_devices_and_runs_a_stream", &[]);
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    let done = run(test.env("STAND_IN_UUID", uuid).env("STAND_IN_CUDA_DEVICES", "3")).unwrap();
    done.check_clean(0).unwrap();
}
