use ash::vk;

pub fn allocation_hint(what: &str) -> &'static str {
    match what {
        "the picture" | "multisampled colour" | "depth" => {
            "; ask for a smaller --size or --samples 1, or close other programs that use this GPU"
        }
        "picture read-back" => "; ask for a smaller --size, or close other programs",
        _ => LESS,
    }
}

const LESS: &str = "; choose a smaller picture (--size, --samples) or field (--grid, --ring), or close other programs that use \
                    this GPU";

pub const DRIVER_VARIABLES: [&str; 5] = [
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_ADD_DRIVER_FILES",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
];

/// Returns a hint that names what keeps the Vulkan loader from drivers that are installed: the
/// [`DRIVER_VARIABLES`] that are set, another libstdc++ in `LD_LIBRARY_PATH`, damaged manifests.
pub fn driver_obstacles() -> String {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let other = std::env::split_paths(&path).find(|folder| folder.join("libstdc++.so.6").exists());
    let other = other.map_or(String::new(), |folder| {
        format!(
            "; LD_LIBRARY_PATH has a libstdc++ of its own in {}, which a driver may not work with: unset it",
            folder.display()
        )
    });
    other + &driver_variables() + &damaged_manifests()
}

/// Returns a hint that names the drivers' manifests that are not JSON. The loader's documentation has the folders:
/// <https://github.com/KhronosGroup/Vulkan-Loader/blob/main/docs/LoaderDriverInterface.md>.
fn damaged_manifests() -> String {
    let named = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"].map(std::env::var_os);
    let named = named.iter().flatten().flat_map(std::env::split_paths).collect::<Vec<_>>();
    let usual = ["/usr/local/share", "/usr/share", "/usr/local/etc", "/etc"];
    let usual = usual.map(|folder| std::path::Path::new(folder).join("vulkan/icd.d"));
    let files = |path: std::path::PathBuf| match path.read_dir() {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path],
    };
    let all = named.into_iter().chain(usual).flat_map(files);
    let all = all.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    let is_damaged = |file: &std::path::PathBuf| {
        let text = std::fs::read(file).ok();
        text.is_some_and(|text| serde_json::from_slice::<serde_json::Value>(&text).is_err())
    };
    let damaged: Vec<_> = all.filter(is_damaged).map(|file| file.display().to_string()).collect();
    match damaged.is_empty() {
        true => String::new(),
        false => format!("; {} is no JSON: install that driver again", damaged.join(", ")),
    }
}

/// Returns a hint that names the [`DRIVER_VARIABLES`] that are set: users forget that they have set them.
fn driver_variables() -> String {
    let set = DRIVER_VARIABLES.iter().filter_map(|name| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(format!("{name}={}", value.display()))
    });
    let set: Vec<_> = set.collect();
    if set.is_empty() {
        return String::new();
    }
    format!("; {} tells the Vulkan loader which drivers to use: correct or unset it", set.join(" "))
}

/// Returns advice on a failed call on `device`: see [`crate::Error::Vulkan`].
pub fn vulkan_hint(device: &str, result: vk::Result) -> String {
    match result {
        // The loader also fails like this for a manifest that it cannot read.
        vk::Result::ERROR_OUT_OF_HOST_MEMORY if device.starts_with("the Vulkan ") => driver_obstacles(),
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => LESS.into(),
        vk::Result::ERROR_DEVICE_LOST => {
            "; the driver gave up on the GPU: look for an Xid line in the kernel log, and rerun with --validation".into()
        }
        vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
            "; no Vulkan driver answered: install the GPU's driver, or mesa-vulkan-drivers for a software device".to_owned()
                + &driver_obstacles()
        }
        vk::Result::ERROR_INITIALIZATION_FAILED => {
            "; the driver is installed but does not start: check that this user may open the GPU's device files".to_owned()
                + &driver_obstacles()
        }
        vk::Result::ERROR_SURFACE_LOST_KHR => "; something else destroyed the window".into(),
        _ => String::new(),
    }
}

/// Returns advice on a failed call: the tool's own where it is more specific, otherwise the library's.
pub fn cuda_hint(call: &str, code: u32) -> String {
    let advice = vulkan_cuda::cuda_advice(call, code);
    let own = match code {
        2 if call == "cuLaunchKernel" => {
            "; the kernel's local arrays, for every thread that the GPU can run at once, do not fit into its free memory"
        }
        2 if call.starts_with("cuModule") || call.starts_with("cuLink") => {
            "; the kernel's code and its global variables do not fit into the GPU's free memory"
        }
        2 => "; ask for a smaller --grid or --ring, or close other programs that use this GPU",
        701 => {
            "; a block of the kernel needs more registers or shared memory than there are: give it __launch_bounds__"
        }
        222 => "; the PTX is newer than the driver: build it for an older PTX version, or update the driver",
        304 if call.starts_with("cuImport") => return format!("{advice}, or with --producer compute"),
        _ => advice,
    };
    own.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wsl_is_named_where_an_import_fails_with_304() {
        let hint = cuda_hint("cuImportExternalMemory", 304);
        assert!(hint.contains("WSL2") && hint.ends_with("itself, or with --producer compute"), "{hint}");
        assert!(!cuda_hint("cuInit", 304).contains("WSL2"));
    }

    #[test]
    fn a_handle_that_cannot_be_imported_is_not_blamed_on_the_kernel_module() {
        for call in ["cuImportExternalMemory", "cuImportExternalSemaphore"] {
            for code in [1, 400, 999] {
                let hint = cuda_hint(call, code);
                assert!(hint.contains("not one that Vulkan exported on this GPU"), "{call}, {code}: {hint}");
            }
        }
        assert!(cuda_hint("cuInit", 999).contains("kernel module"));
    }
}
