//! OpenGL's half of sharing, which glow lacks: the GPU of a context, and imports. `GL_EXT_memory_object_fd`,
//! `GL_EXT_semaphore_fd` and `GL_NV_timeline_semaphore` specify it.

mod functions;

use std::ffi::c_void;
use std::fmt;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::null;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use ash::vk;
use glow::HasContext;
use vulkan_cuda::handle::{MemoryHandle, SemaphoreHandle};

use crate::Unavailable;
use crate::egl::{self, Current, Devices};
use functions::*;

/// How Vulkan and GL identify a device: by the UUIDs of the GPU and of the driver. Both APIs must use the
/// same build of the driver to understand the same memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub device: [u8; 16],
    pub driver: [u8; 16],
}

impl Ids {
    /// The identifiers of a Vulkan device.
    ///
    /// # Safety
    /// `physical` must be one of `instance`'s devices.
    pub unsafe fn of_vulkan(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Self {
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
        // SAFETY: the caller's promise.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        Self { device: ids.device_uuid, driver: ids.driver_uuid }
    }

    /// Why a GL device with the identifiers `found` cannot be used instead of these; `None` if it can.
    pub fn refusal(self, found: &[[u8; 16]], driver: [u8; 16]) -> Option<String> {
        if !found.contains(&self.device) {
            let found: Vec<_> = found.iter().map(hex).collect();
            let found = if found.is_empty() { "none".to_owned() } else { found.join(" and ") };
            return Some(format!(
                "it is another GPU: its UUID is {found}, and Vulkan's and CUDA's is {}",
                hex(&self.device)
            ));
        }
        (driver != self.driver).then(|| {
            format!(
                "its driver is not Vulkan's ({} instead of {}): use OpenGL and Vulkan from one driver package",
                hex(&driver),
                hex(&self.driver)
            )
        })
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A context that is current on this thread.
pub struct Gl {
    pub raw: glow::Context,
    /// GL's name for the device.
    pub name: String,
    functions: Functions,
    // Last, because it ends the context.
    _current: Current,
}

/// The object of a hand-off.
#[derive(Clone, Copy)]
pub enum Named {
    Buffer(glow::Buffer),
    Texture(glow::Texture),
}

/// GL's name for imported memory, or for an imported semaphore.
pub type Name = u32;

impl Gl {
    /// Opens a context on the device `wanted`, with the extensions that import memory; for `None`, on any
    /// device.
    ///
    /// # Errors
    /// [`Unavailable`], with the reason for each device.
    pub fn open(wanted: Option<Ids>) -> Result<Rc<Self>> {
        let egl = egl::load()?;
        let devices = Devices::new(&egl)?;
        let mut reasons = Vec::new();
        for (number, device) in devices.list()?.into_iter().enumerate() {
            match devices.context(&egl, device).and_then(|current| Self::on(current, wanted)) {
                Ok(gl) => return Ok(Rc::new(gl)),
                Err(reason) => reasons.push(format!("EGL device {number}: {reason}")),
            }
        }
        if reasons.is_empty() {
            reasons.push("EGL lists no device".to_owned());
        }
        Err(Unavailable(format!("OpenGL cannot be used: {}", reasons.join("; "))).into())
    }

    /// `Err` says why this is not the wanted device.
    fn on(current: Current, wanted: Option<Ids>) -> Result<Self, String> {
        let find = |name: &str| match current.egl.get_proc_address(name) {
            Some(function) => function as *const c_void,
            None => null(),
        };
        // SAFETY: the context is current, and EGL finds its functions.
        let (raw, functions) =
            unsafe { (glow::Context::from_loader_function(&find), Functions::load(&find)) };
        // SAFETY: (and in this file's other calls of GL) the context is current on this thread, which `Gl` cannot leave.
        let name = unsafe { raw.get_parameter_string(glow::RENDERER) };
        let gl = Self { raw, name, functions, _current: current };
        if let Some(wanted) = wanted {
            for extension in ["GL_EXT_memory_object", "GL_EXT_memory_object_fd"] {
                if !gl.has(extension) {
                    return Err(format!("{} has no {extension}, which imports memory", gl.name));
                }
            }
            let (found, driver) = gl.ids();
            if let Some(refusal) = wanted.refusal(&found, driver) {
                return Err(format!("{}: {refusal}", gl.name));
            }
        }
        Ok(gl)
    }

    pub fn has(&self, extension: &str) -> bool {
        self.raw.supported_extensions().contains(extension)
    }

    /// The UUIDs of the context's devices (several if GPUs are linked), and of its driver.
    fn ids(&self) -> (Vec<[u8; 16]>, [u8; 16]) {
        // SAFETY: both write 16 bytes.
        unsafe {
            let count = self.raw.get_parameter_i32(NUM_DEVICE_UUIDS).max(0) as u32;
            let mut driver = [0; 16];
            (self.functions.get_unsigned_bytes)(DRIVER_UUID, driver.as_mut_ptr());
            let device = |index| {
                let mut device = [0; 16];
                (self.functions.get_unsigned_bytes_at)(DEVICE_UUID, index, device.as_mut_ptr());
                device
            };
            ((0..count).map(device).collect(), driver)
        }
    }

    /// Imports the memory of *one* buffer or image, an allocation of `size` bytes. GL owns the descriptor on
    /// success; otherwise it is closed.
    pub fn import_memory(&self, handle: MemoryHandle, size: u64) -> Result<Name> {
        let MemoryHandle::OpaqueFd(fd) = handle else { bail!("OpenGL imports file descriptors here") };
        let mut memory = 0;
        // SAFETY: asks for one name; the parameter is one number; the descriptor is open.
        unsafe {
            (self.functions.create_memory_objects)(1, &mut memory);
            // Vulkan allocated it for this one resource, and GL must know that before the import.
            (self.functions.memory_object_parameter)(memory, DEDICATED_MEMORY_OBJECT, &1);
            // So that an error below is the import's, which decides who owns the descriptor.
            self.check("glMemoryObjectParameterivEXT")?;
            let fd = OwnedFd::from(fd);
            (self.functions.import_memory_fd)(memory, size, HANDLE_TYPE_OPAQUE_FD, fd.as_raw_fd());
            self.check("glImportMemoryFdEXT")?;
            let _ = fd.into_raw_fd(); // GL's now.
        }
        Ok(memory)
    }

    /// Makes a buffer of `size` bytes on imported memory.
    pub fn buffer_on(&self, memory: Name, size: u64) -> Result<glow::Buffer> {
        // SAFETY: the size is at most the memory's; otherwise GL reports an error.
        unsafe {
            let buffer = self.raw.create_named_buffer().map_err(anyhow::Error::msg)?;
            (self.functions.named_buffer_storage_mem)(buffer.0.get(), size as isize, memory, 0);
            self.check("glNamedBufferStorageMemEXT")?;
            Ok(buffer)
        }
    }

    /// Makes a texture with `levels` levels on imported memory. `format` is GL's name for the image's format.
    pub fn texture_on(
        &self,
        memory: Name,
        format: u32,
        (width, height): (u32, u32),
        levels: u32,
    ) -> Result<glow::Texture> {
        // SAFETY: as above.
        unsafe {
            let texture = self.raw.create_named_texture(glow::TEXTURE_2D).map_err(anyhow::Error::msg)?;
            let (levels, width, height) = (levels as i32, width as i32, height as i32);
            (self.functions.texture_storage_mem_2d)(
                texture.0.get(),
                levels,
                format,
                width,
                height,
                memory,
                0,
            );
            self.check("glTextureStorageMem2DEXT")?;
            Ok(texture)
        }
    }

    /// Whether GL can import semaphores of this kind; `Err` names the missing extension.
    pub fn imports_semaphores(&self, kind: vk::SemaphoreType) -> Result<(), &'static str> {
        let wanted = ["GL_EXT_semaphore", "GL_EXT_semaphore_fd", "GL_NV_timeline_semaphore"];
        let wanted = if kind == vk::SemaphoreType::TIMELINE { &wanted[..] } else { &wanted[..2] };
        wanted.iter().find(|extension| !self.has(extension)).map_or(Ok(()), |lacking| Err(lacking))
    }

    /// Imports a semaphore. GL owns the descriptor on success; otherwise it is closed.
    pub fn import_semaphore(&self, handle: SemaphoreHandle) -> Result<Name> {
        let (fd, timeline) = match handle {
            SemaphoreHandle::TimelineFd(fd) => (fd, true),
            SemaphoreHandle::OpaqueFd(fd) => (fd, false),
            _ => bail!("OpenGL imports file descriptors here"),
        };
        let (mut semaphore, functions) = (0, &self.functions);
        // SAFETY: as in `import_memory`.
        unsafe {
            if timeline {
                // Set the type before the import. Names from glGenSemaphoresEXT cannot become timelines.
                (functions.create_semaphores)(1, &mut semaphore);
                (functions.semaphore_parameter)(semaphore, SEMAPHORE_TYPE, &SEMAPHORE_TYPE_TIMELINE);
            } else {
                (functions.gen_semaphores)(1, &mut semaphore);
            }
            self.check("glSemaphoreParameterivNV")?; // As above.
            let fd = OwnedFd::from(fd);
            (functions.import_semaphore_fd)(semaphore, HANDLE_TYPE_OPAQUE_FD, fd.as_raw_fd());
            self.check("glImportSemaphoreFdEXT")?;
            let _ = fd.into_raw_fd(); // GL's now.
        }
        Ok(semaphore)
    }

    /// GL's later commands wait, on the GPU, for the semaphore (a timeline: for `value`), and then see
    /// everything written to `what`.
    pub fn wait(&self, semaphore: Name, value: Option<u64>, what: Named) {
        self.barrier(self.functions.wait_semaphore, semaphore, value, what);
    }

    /// GL signals when all its commands so far are done, and makes their writes visible to others.
    /// [`Gl::flush`] sends this to the GPU.
    pub fn signal(&self, semaphore: Name, value: Option<u64>, what: Named) {
        self.barrier(self.functions.signal_semaphore, semaphore, value, what);
    }

    fn barrier(&self, call: SemaphoreFn, semaphore: Name, value: Option<u64>, what: Named) {
        // CUDA has no layouts. It uses images in the general layout, and so does GL.
        // SAFETY: the lists have the given lengths, and live until the call returns.
        unsafe {
            if let Some(value) = value {
                (self.functions.semaphore_parameter_u64)(semaphore, TIMELINE_SEMAPHORE_VALUE, &value);
            }
            match what {
                Named::Buffer(buffer) => call(semaphore, 1, &buffer.0.get(), 0, null(), null()),
                Named::Texture(texture) => call(semaphore, 0, null(), 1, &texture.0.get(), &LAYOUT_GENERAL),
            }
        }
    }

    /// Deletes the name. The memory lives as long as others use it.
    pub fn delete_memory(&self, memory: Name) {
        // SAFETY: one name.
        unsafe { (self.functions.delete_memory_objects)(1, &memory) };
    }

    pub fn delete_semaphore(&self, semaphore: Name) {
        // SAFETY: one name.
        unsafe { (self.functions.delete_semaphores)(1, &semaphore) };
    }

    /// Sets the range of depth to 0 to 1, as in Vulkan.
    pub fn depth_from_zero_to_one(&self) {
        // SAFETY: a function of OpenGL 4.5.
        unsafe { (self.functions.clip_control)(glow::LOWER_LEFT, glow::ZERO_TO_ONE) };
    }

    /// Waits, on the CPU, until the GPU has passed `fence`.
    pub fn wait_for(&self, fence: glow::Fence) -> Result<()> {
        // SAFETY: the fence belongs to this context, and is deleted once.
        unsafe {
            // About ten seconds.
            let passed = (0..5).any(|_| {
                let answer = self.raw.client_wait_sync(fence, glow::SYNC_FLUSH_COMMANDS_BIT, i32::MAX);
                answer == glow::ALREADY_SIGNALED || answer == glow::CONDITION_SATISFIED
            });
            self.raw.delete_sync(fence);
            anyhow::ensure!(passed, "OpenGL on {} did not finish a frame within 10 s", self.name);
        }
        self.check("a frame's commands")
    }

    /// Sends all commands so far to the GPU.
    pub fn flush(&self) {
        // SAFETY: no requirements.
        unsafe { self.raw.flush() };
    }

    /// Waits until the GPU is done with all commands so far.
    pub fn finish(&self) {
        // SAFETY: no requirements.
        unsafe { self.raw.finish() };
    }

    /// Makes a fence after all commands so far.
    pub fn fence(&self) -> Result<glow::Fence> {
        // SAFETY: these are the only valid parameters.
        unsafe { self.raw.fence_sync(glow::SYNC_GPU_COMMANDS_COMPLETE, 0) }
            .map_err(anyhow::Error::msg)
            .context("glFenceSync")
    }

    /// Returns an error if GL has recorded one. `call` must be the last call.
    pub fn check(&self, call: &str) -> Result<()> {
        // SAFETY: no requirements.
        let code = unsafe { self.raw.get_error() };
        let (words, advice) = match code {
            glow::NO_ERROR => return Ok(()),
            glow::INVALID_ENUM => {
                ("INVALID_ENUM", "the driver lacks something of OpenGL 4.5 or of an extension that it lists")
            }
            glow::INVALID_VALUE => ("INVALID_VALUE", "a size or a descriptor is not what the driver expects"),
            glow::INVALID_OPERATION => ("INVALID_OPERATION", "this use is not allowed here"),
            glow::OUT_OF_MEMORY => ("OUT_OF_MEMORY", "the GPU's memory is full: try a smaller --size"),
            _ => ("", "see the driver's log"),
        };
        bail!("{call} failed on {}: GL_{words} ({code:#06x}): {advice}", self.name)
    }
}

impl fmt::Debug for Gl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_gpu_and_another_driver_are_refused_with_both_uuids() {
        let wanted = Ids { device: [0xab; 16], driver: [1; 16] };
        assert_eq!(wanted.refusal(&[[0xab; 16]], [1; 16]), None);
        // One of several linked GPUs.
        assert_eq!(wanted.refusal(&[[7; 16], [0xab; 16]], [1; 16]), None);
        let [ours, seven, one, two] = ["ab", "07", "01", "02"].map(|byte| byte.repeat(16));
        assert_eq!(
            wanted.refusal(&[[7; 16]], [1; 16]).unwrap(),
            format!("it is another GPU: its UUID is {seven}, and Vulkan's and CUDA's is {ours}")
        );
        assert!(wanted.refusal(&[], [1; 16]).unwrap().contains("its UUID is none, and"));
        assert_eq!(
            wanted.refusal(&[[0xab; 16]], [2; 16]).unwrap(),
            format!(
                "its driver is not Vulkan's ({two} instead of {one}): use OpenGL and Vulkan from one driver package"
            )
        );
    }
}
