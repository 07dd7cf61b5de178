//! Vulkan devices and window systems that do not do as they say.
