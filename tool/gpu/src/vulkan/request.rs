use std::ffi::CStr;

use ash::{ext, khr, nvx, vk};

use super::device::cuda_inside_vulkan;
use super::{Adapter, Device, DeviceDesc, Queue, failed};
use crate::{Error, Result};

impl Adapter {
    pub fn request_device(&self, desc: &DeviceDesc) -> Result<(Device, Queue)> {
        let _span = tracing::trace_span!("Vulkan device").entered();
        let info = self.info();
        self.can_draw(None).map_err(|reason| Error::Unsupported(format!("{} {reason}", info.name)))?;
        let family = info.queue_family.unwrap_or(0);
        let desc = DeviceDesc { inline: desc.inline && info.inline, ..*desc };
        let raw = create(self, &desc, family)?;
        // SAFETY: made above with what `desc` asks for, and with one queue of this family; not used yet.
        unsafe {
            let device = Device::new(self, raw, &desc)?;
            let queue = Queue::new(&device, family);
            Ok((device, queue))
        }
    }
}

fn create(adapter: &Adapter, desc: &DeviceDesc, family: u32) -> Result<ash::Device> {
    let info = adapter.info();
    let optional = [
        (desc.present, khr::swapchain::NAME),
        (info.calibrated_timestamps, ext::calibrated_timestamps::NAME),
        (info.memory_budget, ext::memory_budget::NAME),
        (desc.inline, nvx::binary_import::NAME),
        (info.device_fault, ext::device_fault::NAME),
    ];
    let wanted = optional.into_iter().filter_map(|(is_wanted, name)| is_wanted.then_some(name));
    // A device that exports memory but no semaphores is useful too: it shows what exporting costs a draw.
    let exports = desc.interop.then(|| info.sharing.extensions());
    let extensions: Vec<_> = wanted.chain(exports.into_iter().flatten()).map(CStr::as_ptr).collect();
    let priorities = [1.0];
    let queues =
        [vk::DeviceQueueCreateInfo::default().queue_family_index(family).queue_priorities(&priorities)];
    let mut features12 = vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .shader_buffer_int64_atomics(info.atomics64)
        .buffer_device_address(desc.inline);
    let mut features13 =
        vk::PhysicalDeviceVulkan13Features::default().synchronization2(true).dynamic_rendering(true);
    let features = vk::PhysicalDeviceFeatures::default()
        .sparse_binding(info.sparse_binding && desc.interop)
        .shader_int64(info.atomics64);
    let mut fault = vk::PhysicalDeviceFaultFeaturesEXT::default().device_fault(true);
    let mut create = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_extension_names(&extensions)
        .enabled_features(&features)
        .push_next(&mut features12)
        .push_next(&mut features13);
    if info.device_fault {
        create = create.push_next(&mut fault);
    }
    let _alone = desc.inline.then(cuda_inside_vulkan);
    // SAFETY: the adapter belongs to this instance; `create` points to locals; the features were checked.
    unsafe { adapter.instance().raw().create_device(adapter.raw(), &create, None) }
        .map_err(failed("vkCreateDevice", &info.name))
}
