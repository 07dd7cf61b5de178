//! The report of a lost device: `VK_EXT_device_fault`.

use std::ffi::CStr;

use ash::{ext, vk};

/// Returns the driver's report in words; `None` if there is none. Call it only after the device was lost.
pub(super) fn report(instance: &ash::Instance, device: &ash::Device) -> Option<String> {
    let functions = ext::device_fault::Device::new(instance, device);
    let (ask, device) = (functions.fp().get_device_fault_info_ext, functions.device());
    let mut counts = vk::DeviceFaultCountsEXT::default();
    // SAFETY: the device was lost; with a null report, only the counts are written.
    unsafe { ask(device, &mut counts, std::ptr::null_mut()) }.result().ok()?;
    // Skip the vendor's binary dump: it needs a separate feature, and only the vendor's tool can read it.
    counts.vendor_binary_size = 0;
    let mut addresses = vec![vk::DeviceFaultAddressInfoEXT::default(); counts.address_info_count as usize];
    let mut vendors = vec![vk::DeviceFaultVendorInfoEXT::default(); counts.vendor_info_count as usize];
    let mut report = vk::DeviceFaultInfoEXT {
        p_address_infos: addresses.as_mut_ptr(),
        p_vendor_infos: vendors.as_mut_ptr(),
        ..Default::default()
    };
    // SAFETY: the arrays have the lengths in `counts`, which the driver lowers to what it wrote.
    let answer = unsafe { ask(device, &mut counts, &mut report) };
    if answer != vk::Result::SUCCESS && answer != vk::Result::INCOMPLETE {
        return None;
    }
    addresses.truncate(counts.address_info_count as usize);
    vendors.truncate(counts.vendor_info_count as usize);
    let description = report.description_as_c_str().map_or("".into(), CStr::to_string_lossy);
    let mut words = vec![description.into_owned()];
    words.extend(addresses.iter().map(address_words));
    words.extend(vendors.iter().map(vendor_words));
    words.retain(|words| !words.is_empty());
    (!words.is_empty()).then(|| words.join(", "))
}

/// Formats the kind and address range of a fault. The precision, a power of two, sets the range's size.
fn address_words(info: &vk::DeviceFaultAddressInfoEXT) -> String {
    use vk::DeviceFaultAddressTypeEXT as Kind;
    let kind = match info.address_type {
        Kind::READ_INVALID => "invalid read",
        Kind::WRITE_INVALID => "invalid write",
        Kind::EXECUTE_INVALID => "invalid execution",
        Kind::INSTRUCTION_POINTER_UNKNOWN => "instruction pointer",
        Kind::INSTRUCTION_POINTER_INVALID => "invalid instruction pointer",
        Kind::INSTRUCTION_POINTER_FAULT => "fault of the instruction",
        _ => "address",
    };
    let mask = info.address_precision.saturating_sub(1);
    format!("{kind} at {:#x} to {:#x}", info.reported_address & !mask, info.reported_address | mask)
}

fn vendor_words(info: &vk::DeviceFaultVendorInfoEXT) -> String {
    let words = info.description_as_c_str().map_or("".into(), CStr::to_string_lossy);
    let words = if words.is_empty() { "vendor fault" } else { &*words };
    format!("{words} (code {:#x}, data {:#x})", info.vendor_fault_code, info.vendor_fault_data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_range() {
        let info = vk::DeviceFaultAddressInfoEXT {
            address_type: vk::DeviceFaultAddressTypeEXT::WRITE_INVALID,
            reported_address: 0x1234,
            address_precision: 0x1000,
        };
        assert_eq!(address_words(&info), "invalid write at 0x1000 to 0x1fff");
        let exact = vk::DeviceFaultAddressInfoEXT { address_precision: 1, ..info };
        assert_eq!(address_words(&exact), "invalid write at 0x1234 to 0x1234");
    }
}
