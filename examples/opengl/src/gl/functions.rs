//! The functions and constants of the extensions, which glow lacks.

use std::ffi::{c_int, c_void};

pub const DEDICATED_MEMORY_OBJECT: u32 = 0x9581;
pub const HANDLE_TYPE_OPAQUE_FD: u32 = 0x9586;
pub const LAYOUT_GENERAL: u32 = 0x958d;
pub const TIMELINE_SEMAPHORE_VALUE: u32 = 0x9595;
pub const NUM_DEVICE_UUIDS: u32 = 0x9596;
pub const DEVICE_UUID: u32 = 0x9597;
pub const DRIVER_UUID: u32 = 0x9598;
pub const SEMAPHORE_TYPE: u32 = 0x95b3;
pub const SEMAPHORE_TYPE_TIMELINE: i32 = 0x95b5;

pub type SemaphoreFn = unsafe extern "system" fn(u32, u32, *const u32, u32, *const u32, *const u32);

macro_rules! functions {
    ($($field:ident = $name:literal: $kind:ty,)*) => {
        /// Functions that glow lacks. If the driver lacks one, a call of it ends the program with a message:
        /// callers check for the extension first.
        pub struct Functions {
            $(pub $field: $kind,)*
        }

        impl Functions {
            /// # Safety
            /// `find` must return GL's functions.
            pub unsafe fn load(find: &dyn Fn(&str) -> *const c_void) -> Self {
                Self {
                    $($field: {
                        let found = match find($name) {
                            found if found.is_null() => absent as *const c_void,
                            found => found,
                        };
                        // SAFETY: the function has this type in its specification.
                        unsafe { std::mem::transmute::<*const c_void, $kind>(found) }
                    },)*
                }
            }
        }
    };
}

extern "system" fn absent() {
    eprintln!("error: the OpenGL driver lists an extension without its functions; try another version of it");
    std::process::exit(1);
}

functions! {
    clip_control = "glClipControl": unsafe extern "system" fn(u32, u32),
    get_unsigned_bytes = "glGetUnsignedBytevEXT": unsafe extern "system" fn(u32, *mut u8),
    get_unsigned_bytes_at = "glGetUnsignedBytei_vEXT": unsafe extern "system" fn(u32, u32, *mut u8),
    create_memory_objects = "glCreateMemoryObjectsEXT": unsafe extern "system" fn(c_int, *mut u32),
    memory_object_parameter = "glMemoryObjectParameterivEXT": unsafe extern "system" fn(u32, u32, *const c_int),
    import_memory_fd = "glImportMemoryFdEXT": unsafe extern "system" fn(u32, u64, u32, c_int),
    delete_memory_objects = "glDeleteMemoryObjectsEXT": unsafe extern "system" fn(c_int, *const u32),
    named_buffer_storage_mem = "glNamedBufferStorageMemEXT": unsafe extern "system" fn(u32, isize, u32, u64),
    texture_storage_mem_2d = "glTextureStorageMem2DEXT":
        unsafe extern "system" fn(u32, c_int, u32, c_int, c_int, u32, u64),
    gen_semaphores = "glGenSemaphoresEXT": unsafe extern "system" fn(c_int, *mut u32),
    create_semaphores = "glCreateSemaphoresNV": unsafe extern "system" fn(c_int, *mut u32),
    semaphore_parameter = "glSemaphoreParameterivNV": unsafe extern "system" fn(u32, u32, *const c_int),
    semaphore_parameter_u64 = "glSemaphoreParameterui64vEXT": unsafe extern "system" fn(u32, u32, *const u64),
    import_semaphore_fd = "glImportSemaphoreFdEXT": unsafe extern "system" fn(u32, u32, c_int),
    delete_semaphores = "glDeleteSemaphoresEXT": unsafe extern "system" fn(c_int, *const u32),
    wait_semaphore = "glWaitSemaphoreEXT": SemaphoreFn,
    signal_semaphore = "glSignalSemaphoreEXT": SemaphoreFn,
}
